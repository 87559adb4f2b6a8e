"""A load generator to steer by: `python -m bench --help`."""
