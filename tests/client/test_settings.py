"""Connection settings: their keys, errors that name the key, and secrets that nobody sees."""

import logging
from pathlib import Path
from typing import Any

import pytest

from trunkline.client.settings import MAX_WINDOW, WINDOW_V3, ConnectionSettings, WillMessage
from trunkline.config.errors import ConfigError
from trunkline.mqtt.versions import Version


def test_keywords() -> None:
    values: dict[str, Any] = {"version": "3.1.1", "session_expiry": "2h", "keep_alive": "1m"}
    settings = ConnectionSettings(host="broker", client_id="a", **values)
    assert (settings.version, settings.session_expiry, settings.keep_alive) == (Version.V311, 7200, 60)
    assert settings.url == "mqtt://broker"


@pytest.mark.parametrize(
    "url",
    [
        "mqtt://h",
        "mqtts://u@h:1",
        "ws://h:8083/a",
        "wss://[::1]",
        "mqtt://[fe80::1%25eth0]",
        "unix:///run/mq",
        "mqtt://a%40b@h",
    ],
)
def test_the_url_for_logs_leads_to_the_same_address(url: str) -> None:
    assert ConnectionSettings.from_url(url).url == url


@pytest.mark.parametrize(
    ("key", "least", "most", "default"),
    [
        ("receive_maximum", 1, 65_535, 1000),
        ("max_inflight", 1, 65_535, None),
        ("topic_aliases_in", 0, 65_535, 0),
        ("topic_aliases_out", 0, 65_535, 0),
        ("max_packet_size", 0, 268_435_460, 0),
    ],
)
def test_numbers_have_the_bounds_of_the_protocol(key: str, least: int, most: int, default: int | None) -> None:
    assert getattr(ConnectionSettings(), key) == default
    for value in (least, most):
        given: dict[str, Any] = {key: value}
        assert getattr(ConnectionSettings(**given), key) == value
    for value in (least - 1, most + 1):
        given = {key: value}
        with pytest.raises(ConfigError, match=key):
            ConnectionSettings(**given)


ALL_WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"host": ""}, 'host: "": accepted is text of 1 or more characters'),
    ({"port": 70_000}, "port: 70000: accepted is a port, 1 to 65535"),
    ({"version": "4"}, 'version: "4": accepted is "5.0", "3.1.1" or "3.1"'),
    ({"keep_alive": 70_000}, "keep_alive: 70000: accepted is whole seconds"),
    ({"keep_aliv": 1}, "keep_aliv: unknown key; did you mean keep_alive?"),
    ({"will": {"topic": "a", "qos": 3}}, "will.qos: 3: accepted is a whole number, 0 to 2"),
    ({"will": {}}, "will.topic: is missing"),
    ({"host": "mqtt://u:secret@h"}, "host is a name or an address, not a URL: that is for from_url"),
    ({"password": 5}, "password: what it holds: accepted is text"),
    ({"password": "x", "password_file": "y"}, "password and password_file are both set"),
    ({"transport": "unix"}, "a Unix socket needs a path"),
    ({"path": "/x"}, "path /x has no meaning for tcp"),
    ({"key": "k.pem"}, "key needs certificate"),
    ({"version": "3.1.1", "password": "x"}, "MQTT 3.1.1 has no password without a user name"),
    ({"version": "3.1.1", "clean_start": False}, "MQTT 3.1.1 resumes no session without a client_id"),
)


@pytest.mark.parametrize(("values", "words"), ALL_WRONG, ids=[words for _, words in ALL_WRONG])
def test_errors_name_the_key(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ConnectionSettings(**values)
    assert str(caught.value).startswith(words)


def test_errors_of_a_will_alone() -> None:
    with pytest.raises(ConfigError) as caught:
        WillMessage(topic="", qos=3)
    assert str(caught.value).splitlines() == [
        "topic: the topic name is empty",
        "qos: 3: accepted is a whole number, 0 to 2",
    ]


@pytest.mark.parametrize("key", ["client_id", "username"])
@pytest.mark.parametrize("text", ["a\0b", "a\ud800b", "x" * 65_536], ids=["U+0000", "surrogate", "too long"])
def test_text_that_mqtt_cannot_carry_is_refused(key: str, text: str) -> None:
    values: dict[str, Any] = {key: text}
    with pytest.raises(ConfigError, match=key):
        ConnectionSettings(**values)


@pytest.mark.parametrize("topic", ["", "a/#", "a\0b"])
def test_a_will_needs_a_topic_name(topic: str) -> None:
    with pytest.raises(ConfigError, match="topic"):
        WillMessage(topic=topic)


def test_secrets_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    settings = ConnectionSettings.from_url("mqtt://u:secret@h")
    logging.getLogger("x").warning("%s %r %s", settings, settings, settings.url)
    assert "secret" not in caplog.text
    assert settings.password == "secret"


def test_the_password_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    settings = ConnectionSettings(username="u", password_file=file)
    assert settings.read_password() == b"first"
    file.write_text("second\r\n")
    assert settings.read_password() == b"second"


def test_passwords_as_text_and_as_bytes() -> None:
    assert ConnectionSettings(password="é").read_password() == "é".encode()
    assert ConnectionSettings(password=b"\0\xff").read_password() == b"\0\xff"
    assert ConnectionSettings().read_password() is None


@pytest.mark.parametrize(
    ("version", "max_inflight", "expected"),
    [("5.0", None, MAX_WINDOW), ("3.1.1", None, WINDOW_V3), ("5.0", 7, 7), ("3.1.1", 7, 7)],
)
def test_how_many_messages_may_be_in_flight(version: Any, max_inflight: int | None, expected: int) -> None:
    assert ConnectionSettings(version=version, max_inflight=max_inflight).window == expected


def test_which_transports_encrypt() -> None:
    urls = ("mqtt://h", "mqtts://h", "ws://h", "wss://h", "unix:///run/mq")
    assert [ConnectionSettings.from_url(url).is_encrypted for url in urls] == [False, True, False, True, False]


def test_changed_settings() -> None:
    settings = ConnectionSettings.from_url("mqtt://u:p@h", will=WillMessage(topic="a"))
    other = settings.changed(host="i", keep_alive=5)
    assert (other.url, other.keep_alive, other.password) == ("mqtt://u@i", 5, "p")
    assert other.will == settings.will
    with pytest.raises(ConfigError, match="port"):
        settings.changed(port=0)
