"""The Spark side: the event log as a source, results back to MQTT and to tables, jobs and a report."""
