"""The message flow plane: connections, sessions, pubsub, and the node that puts them together."""
