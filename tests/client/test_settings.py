"""Connection settings: each source, their order, errors that name the key, and secrets that nobody sees."""

import logging
from pathlib import Path
from typing import Any

import pytest

from trunkline.client.settings import ConnectionSettings, WillMessage
from trunkline.config.errors import ConfigError
from trunkline.mqtt.packets import Will
from trunkline.mqtt.versions import Version


def test_keywords() -> None:
    values: dict[str, Any] = {"version": "3.1.1", "session_expiry": "2h", "keep_alive": "1m"}
    settings = ConnectionSettings(host="broker", client_id="a", **values)
    assert (settings.version, settings.session_expiry, settings.keep_alive) == (Version.V311, 7200, 60)
    assert settings.url == "mqtt://broker"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mqtt://h", {"transport": "tcp", "host": "h", "actual_port": 1883}),
        ("tcp://h:1", {"transport": "tcp", "actual_port": 1}),
        ("mqtts://h", {"transport": "tls", "actual_port": 8883, "is_encrypted": True}),
        ("ws://h", {"transport": "ws", "actual_port": 80, "resource": "/mqtt"}),
        ("wss://h:8443/a/b", {"transport": "wss", "actual_port": 8443, "resource": "/a/b", "is_encrypted": True}),
        ("mqtt://[::1]:1884/", {"host": "::1", "actual_port": 1884, "path": ""}),
        ("unix:///run/m%20q", {"transport": "unix", "path": "/run/m q"}),
        ("unix://u:p@/run/mq", {"transport": "unix", "username": "u", "password": "p", "path": "/run/mq"}),
        ("mqtt://a%40b:c%2Fd@h", {"username": "a@b", "password": "c/d"}),
        ("mqtt://u@h", {"username": "u", "password": None}),
        (
            "mqtt://h?client_id=x%20y&keep_alive=2m&clean_start=false&version=3.1.1",
            {"client_id": "x y", "keep_alive": 120, "clean_start": False, "version": Version.V311},
        ),
    ],
)
def test_urls(url: str, expected: dict[str, object]) -> None:
    settings = ConnectionSettings.from_url(url)
    assert {name: getattr(settings, name) for name in expected} == expected


@pytest.mark.parametrize(
    "url",
    ["mqtt://h", "mqtts://u@h:1", "ws://h:8083/a", "wss://[::1]", "unix:///run/mq", "mqtt://a%40b@h"],
)
def test_the_url_for_logs_leads_to_the_same_address(url: str) -> None:
    assert ConnectionSettings.from_url(url).url == url


@pytest.mark.parametrize(
    "url",
    ["h", "ftp://h", "mqtt://", "mqtt://u:secret@h:x", "mqtt://u:secret@h/path", "unix://h/x", "unix://", "mqtt://h#x"],
)
def test_bad_urls_are_refused_without_their_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^URL: url: .* is not of the form") as caught:
        ConnectionSettings.from_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("keep_aliv=1", "keep_aliv in its query: unknown key; did you mean keep_alive?"),
        ("password=secret", "password cannot stand in its query"),
        ("keep_alive=1&keep_alive=2", "keep_alive stands twice in its query"),
        ("keep_alive", "its query is not of the form"),
    ],
)
def test_bad_queries_are_refused(query: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"^URL: url: .*{words.replace('?', '.')}") as caught:
        ConnectionSettings.from_url(f"mqtt://h?{query}")
    assert "secret" not in str(caught.value)


def test_a_url_is_text(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text("url = 5\n")
    with pytest.raises(ConfigError, match="client.toml: url: .* is not of the form"):
        ConnectionSettings.from_file(file)


def test_environment() -> None:
    settings = ConnectionSettings.from_environment(
        {
            "TRUNKLINE_MQTT_URL": "mqtts://u@h",
            "TRUNKLINE_MQTT_PASSWORD_FILE": "/secrets/p",
            "TRUNKLINE_MQTT_CLEAN_START": "no",
            "TRUNKLINE_MQTT_USER_PROPERTIES": '[["a", "b"]]',
            "TRUNKLINE_MQTT__MAX_QOS": "1",  # the broker's
            "OTHER": "x",
        }
    )
    assert (settings.transport, settings.username, settings.clean_start) == ("tls", "u", False)
    assert settings.password_file == Path("/secrets/p")
    assert settings.user_properties == (("a", "b"),)


def test_the_process_has_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_MQTT_HOST", "here")
    assert ConnectionSettings.from_environment().host == "here"


def test_file(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text(
        'url = "wss://h/x"\nca_file = "ca.pem"\nsession_expiry = "never"\n'
        '[will]\ntopic = "gone"\npayload = "x"\ndelay = 5\n'
    )
    settings = ConnectionSettings.from_file(file)
    assert settings.url == "wss://h/x"
    assert settings.ca_file == tmp_path / "ca.pem"
    assert settings.session_expiry == 0xFFFF_FFFF
    assert settings.will is not None
    assert settings.will.packet == Will("gone", b"x", properties={"will_delay_interval": 5})


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text('host = "file"\nport = 1\nkeep_alive = 1\nclient_id = "file"\nusername = "file"\n')
    settings = ConnectionSettings.gather(
        file=file,
        environ={"TRUNKLINE_MQTT_KEEP_ALIVE": "2", "TRUNKLINE_MQTT_CLIENT_ID": "environment"},
        url="mqtt://url",
        client_id="keyword",
    )
    assert (settings.url, settings.client_id, settings.keep_alive) == ("mqtt://file@url", "keyword", 2)


ALL_WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"host": ""}, 'host: "": accepted is text of 1 or more characters'),
    ({"port": 70_000}, "port: 70000: accepted is a port, 1 to 65535"),
    ({"version": "4"}, 'version: "4": accepted is "5.0", "3.1.1" or "3.1"'),
    ({"keep_alive": 70_000}, "keep_alive: 70000: accepted is whole seconds"),
    ({"keep_aliv": 1}, "keep_aliv: unknown key; did you mean keep_alive?"),
    ({"will": {"topic": "a", "qos": 3}}, "will.qos: 3: accepted is a whole number, 0 to 2"),
    ({"will": {}}, "will.topic: is missing"),
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


def test_all_errors_come_at_once_each_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text("keep_alive = -1\n")
    environ = {"TRUNKLINE_MQTT_PORT": "x", "TRUNKLINE_MQTT_PROT": "1"}
    with pytest.raises(ConfigError) as caught:
        ConnectionSettings.gather(file=file, environ=environ, ping_timeout=0.0)
    assert sorted(str(caught.value).splitlines()) == sorted(
        [
            f'{file}: keep_alive: -1: accepted is whole seconds, or text such as "60s", "2h", 65535 at most',
            'variable TRUNKLINE_MQTT_PORT: port: "x": accepted is a port, 1 to 65535',
            "variable TRUNKLINE_MQTT_PROT: sets nothing; did you mean TRUNKLINE_MQTT_PORT?",
            'ping_timeout: 0.0: accepted is seconds, or text such as "15s", "2h", more than 0',
        ]
    )


@pytest.mark.parametrize(
    ("content", "words"), [(None, "cannot be read"), (b"\xff", "is not UTF-8 text"), (b"a = ", "is not TOML")], ids=str
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "client.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        ConnectionSettings.from_file(file)


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


def test_changed_settings() -> None:
    settings = ConnectionSettings.from_url("mqtt://u:p@h", will=WillMessage(topic="a"))
    other = settings.changed(host="i", keep_alive=5)
    assert (other.url, other.keep_alive, other.password) == ("mqtt://u@i", 5, "p")
    assert other.will == settings.will
    with pytest.raises(ConfigError, match="port"):
        settings.changed(port=0)
