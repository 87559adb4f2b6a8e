"""Jobs: each one is a function from the table of events to a table of results."""
