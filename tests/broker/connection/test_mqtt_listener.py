"""What the MQTT connections of a listener share, by its settings."""

from typing import Any

import pytest

from trunkline.broker.connection.mqtt_listener import MqttListener
from trunkline.broker.rate_limits import NodeLimits
from trunkline.config.config import Config
from trunkline.config.reader import from_mapping
from trunkline.mqtt.versions import Version

ANY: Any = None


def shared(config: Config, inside: bool = False) -> MqttListener:
    settings = None if inside else config.listeners[0]
    return MqttListener(ANY, ANY, ANY, lambda config: NodeLimits(config.rate), config, settings)


def config(listener: dict[str, object] | None = None, **sections: Any) -> Config:
    return from_mapping({"listeners": [{"url": "tcp://127.0.0.1:0", **(listener or {})}], **sections})


def test_without_settings_all_may_come() -> None:
    for inside in (True, False):
        found = shared(config(), inside)
        assert found.name == ("in-process" if inside else "tcp://127.0.0.1:0")
        assert (found.allow_anonymous, found.versions, found.durable) == (True, frozenset(Version), True)
        assert (found.authenticators, found.mountpoint, found.limits.is_unlimited) == (None, "", True)


@pytest.mark.parametrize(
    ("listener", "name", "value"),
    [
        ({"name": "plant"}, "name", "plant"),
        ({"allow_anonymous": False}, "allow_anonymous", False),
        ({"versions": ["3.1.1", "5.0"]}, "versions", {Version.V311, Version.V5}),
        ({"durability": "memory"}, "durable", False),
        ({"authenticators": []}, "authenticators", ()),
        ({"mountpoint": "plant/"}, "mountpoint", "plant/"),
    ],
)
def test_settings_of_the_listener_hold_and_may_change(listener: dict[str, object], name: str, value: object) -> None:
    before, after = config(), config(listener)
    found = shared(before)
    assert getattr(found, name) != value
    found.configure(after, after.listeners[0])
    assert getattr(found, name) == value


def test_a_zone_comes_before_the_general_settings() -> None:
    zones = {"slow": {"max_packet_size": 9999, "client_messages": "1/s"}}
    found = shared(config({"zone": "slow"}, zones=zones))
    assert found.config.mqtt.max_packet_size == 9999
    assert not found.limits.is_unlimited
    inside = shared(config({"zone": "slow"}, zones=zones), inside=True)
    assert inside.config.mqtt.max_packet_size != 9999
    assert inside.limits.is_unlimited
