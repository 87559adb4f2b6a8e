"""sparkplug-client: an edge node of industry's payloads over MQTT, on an old MQTT.js."""

from pathlib import Path

import pytest

from tests.interop import server
from tests.interop.server import Broker
from tests.interop.test_mqttjs import need_node, play


@pytest.fixture(autouse=True)
def _client() -> None:
    need_node("sparkplug-client")


def test_an_edge_node(broker: Broker, name: str) -> None:
    assert play(broker, "sparkplug", name, 4) == ["birth", "data"]


def test_empty_credentials_are_none(tmp_path: Path, name: str) -> None:
    """Its examples have empty strings for user name and password."""
    with server.with_passwords(tmp_path) as broker:
        assert play(broker, "sparkplug", name, 4) == ["birth", "data"]
