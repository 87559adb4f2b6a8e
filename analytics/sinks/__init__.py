"""Where results of Spark queries go: back to MQTT topics, and into Delta tables, each once.

Spark's Python processes import this package for each query, so its modules import no more than they need.
"""
