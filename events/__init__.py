"""The event log: events of the hooks, appended to files with exact numbers, and read again. Terms: rows are in
*segments*, one of which is being written while the others are sealed. A *position* is the number of the next row to
read, which a *consumer* keeps under its name, for each *node key*: a node and its *incarnation*, one run of the
exporter. Row numbers (`seq`) count from 0 within an incarnation, without gaps. *Retention* deletes the oldest segments;
*compaction* writes sealed ones as few large files.

Modules that know each other: exporter, plugin.
"""
