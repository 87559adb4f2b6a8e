from tests.client.rows.rig import network

__all__ = ["network"]
