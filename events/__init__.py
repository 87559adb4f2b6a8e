"""The event log: what the hooks tell, appended to files with exact numbers, and read again.

Each node writes files of its own. A row's number, `seq`, has no gaps, so whoever reads the log can say where it stands
with one number a node, and read the same rows again.

Modules that know each other: exporter, plugin.
"""
