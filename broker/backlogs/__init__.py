"""What durable sessions still have to get, by topic filter.

A message is stored once, and once more as a short entry for each filter that somebody holds who is behind, however many
sessions that are. A session has a position in the sequence of all entries.
"""
