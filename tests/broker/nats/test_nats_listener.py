"""What the NATS connections of a listener share, by its settings."""

import json
from itertools import count
from typing import Any

import pytest

from trunkline.broker.nats.nats_listener import NatsListener
from trunkline.broker.rate_limits import NodeLimits
from trunkline.config.config import Config
from trunkline.config.errors import ConfigError
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.reader import from_mapping

ANY: Any = None


def shared(config: Config, inside: bool = False) -> NatsListener:
    settings = None if inside else config.listeners[0]
    return NatsListener(ANY, ANY, ANY, lambda config: NodeLimits(config.rate), "NID", count(5), ANY, config, settings)


def config(listener: dict[str, object] | None = None, **sections: Any) -> Config:
    return from_mapping({"listeners": [{"url": "nats://127.0.0.1:4222", **(listener or {})}], **sections})


def told(listener: NatsListener) -> dict[str, Any]:
    line = listener.info(("192.0.2.1", 7))
    assert line.startswith(b"INFO {")
    assert line.endswith(b"}\r\n")
    found: dict[str, Any] = json.loads(line[5:])
    return found


def test_what_clients_are_told() -> None:
    listener = shared(config())
    assert told(listener) == {
        "server_id": "NID",
        "server_name": "trunkline",
        "version": "2.12.0",
        "proto": 1,
        "go": "",
        "host": "127.0.0.1",
        "port": 4222,
        "headers": True,
        "jetstream": True,
        "api_lvl": 2,
        "max_payload": 1_048_576,
        "client_id": 5,
        "client_ip": "192.0.2.1",
    }
    assert told(listener)["client_id"] == 6
    assert b"client_ip" not in listener.info(None)


@pytest.mark.parametrize(
    ("listener", "sections", "key", "value"),
    [
        ({"allow_anonymous": False}, {}, "auth_required", True),
        ({}, {"nats": {"max_payload": 1000}}, "max_payload", 1000),
        ({}, {"mqtt": {"max_payload_size": 2000}}, "max_payload", 2000),
        ({}, {"node": {"name": "b"}}, "server_name", "b"),
    ],
)
def test_settings_show(listener: dict[str, Any], sections: Any, key: str, value: object) -> None:
    before, after = config(), config(listener, **sections)
    found = shared(before)
    assert told(found).get(key) != value
    found.configure(after, after.listeners[0] if after.listeners else None)
    assert told(found)[key] == value


def test_without_settings_all_may_come() -> None:
    found = shared(config(), inside=True)
    assert (found.name, found.allow_anonymous, found.authenticators) == ("in-process", True, None)
    assert (told(found)["host"], told(found)["port"]) == ("", 0)


@pytest.mark.parametrize("settings", [{"mountpoint": "a/"}, {"versions": ["5.0"]}, {"tls": {"certificate": "c"}}])
def test_what_nats_has_not_is_no_setting(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        config(settings)


def test_tls_has_a_scheme_of_its_own() -> None:
    with pytest.raises(ConfigError, match="needs a certificate"):
        from_mapping({"listeners": ["nats+tls://127.0.0.1:0"]})


@pytest.mark.parametrize(
    ("url", "tls", "said"),
    [
        ("nats+tls://h", {}, {"tls_required": True}),
        ("nats+tls://h", {"client_certificates": "optional", "client_ca": "ca"}, {"tls_required": True}),
        (
            "nats+tls://h",
            {"client_certificates": "required", "client_ca": "ca"},
            {"tls_required": True, "tls_verify": True},
        ),
        ("nats+wss://h", {}, {"tls_required": True, "tls_available": True}),
        ("nats+ws://h", None, {}),
    ],
)
def test_what_is_said_of_tls(url: str, tls: dict[str, str] | None, said: dict[str, bool]) -> None:
    listener = ListenerSettings.model_validate(
        {"url": url} | ({} if tls is None else {"tls": {"certificate": "c"} | tls})
    )
    found = NatsListener(
        ANY, ANY, ANY, lambda config: NodeLimits(config.rate), "NID", count(5), ANY, Config(), listener
    )
    assert {key: value for key, value in told(found).items() if key.startswith("tls")} == said
