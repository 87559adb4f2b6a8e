"""Everything at once: a broker, devices, the event log, Spark, results back by MQTT, a report, and a check of it all."""
