"""NATS as what a listener speaks: a connection and its client in one actor, which publishes and subscribes through the
same routes as sessions do.
"""
