"""JetStream at a listener: the API on the streams of the node, acknowledged publishing, and consumers that are pulled
from or that push."""
