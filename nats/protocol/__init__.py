"""The protocol of NATS, from either side and without I/O: subjects, headers, and operations to bytes and back."""
