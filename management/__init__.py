"""The control plane: command line, logs, figures. It reads snapshots and sends calls, and never stands on a message's
way.

Modules that know each other: log_file, logs.
"""
