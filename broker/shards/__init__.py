"""What makes several shards one node."""
