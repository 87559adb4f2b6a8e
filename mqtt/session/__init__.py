"""The engine of a session, which broker and client share: what becomes of the messages and acknowledgements of both
sides. It is given packets, answers and times, and returns what follows; it sends nothing, and waits for nothing.
"""
