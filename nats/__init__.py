"""The NATS protocol: its operations, headers and subjects, and the requests and replies of JetStream. Knows nothing of
MQTT, and does no I/O."""
