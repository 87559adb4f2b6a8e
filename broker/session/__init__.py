"""The session layer: what the broker keeps for one client, connected or not."""
