"""The configuration of a node: settings and their units, and the reader with its errors. Knows nothing of the
broker."""
