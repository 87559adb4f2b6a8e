"""JetStream's requests and replies as types, without I/O: what is configured, and what servers say."""
