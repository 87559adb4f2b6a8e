"""Where settings come from: each source, their order, and errors that name the source and no secret."""

import os
from pathlib import Path

import pytest

from trunkline.client.settings import ConnectionSettings
from trunkline.client.settings_sources import PREFIX
from trunkline.config.config import key_paths, variable
from trunkline.config.errors import ConfigError
from trunkline.config.reader import CLIENT_VARIABLES, load
from trunkline.mqtt.packets import Will
from trunkline.mqtt.versions import Version

RESERVED = "in a user name or password, % / ? # and @ are written %25 %2F %3F %23 %40"
FORM = "the form is mqtt[s]|ws[s]://[USER[:PASSWORD]@]HOST[:PORT][/PATH][?KEY=VALUE&…], or unix:///PATH"


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
        ("mqtt://a%3Ab:c:d@e@h", {"username": "a:b", "password": "c:d@e", "host": "h"}),
        ("mqtt://[fe80::1%25eth0]:1", {"host": "fe80::1%eth0", "actual_port": 1}),
        ("MQTT://h:?", {"host": "h", "actual_port": 1883}),
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


BAD_URLS = (
    ("h", f"has no scheme: {FORM}"),
    ("mqt://h", f"mqt is not a scheme; did you mean mqtt?: {FORM}"),
    ("mqtt://", f"has no host: {FORM}"),
    ("mqtt://u:secret@", f"has no host: {FORM}"),
    ("mqtt://u:secret@h:x", f"its port is not a number from 1 to 65535 ({RESERVED})"),
    ("mqtt://u:secret", f"its port is not a number from 1 to 65535 ({RESERVED})"),
    ("mqtt://u:sec/ret@h", f"its port is not a number from 1 to 65535 ({RESERVED})"),
    ("mqtt://h:70000", f"its port is not a number from 1 to 65535 ({RESERVED})"),
    ("mqtt://::1:1883", f"its port is not a number from 1 to 65535 ({RESERVED})"),
    ("mqtt://[::1", f"its host is invalid (an IPv6 address stands in brackets): {FORM}"),
    ("mqtt://u:secret@h/path", f"mqtt has no path ({RESERVED})"),
    ("ws://u:12/secret@h", f"has an @ behind its host: {RESERVED}"),
    ("mqtt://h#x", f"has a #: {RESERVED}"),
    ("mqtt://u:secret@h#", f"has a #: {RESERVED}"),
    ("mqtt://u:secret%zz@h", f"has a % without two hexadecimal digits behind it: {RESERVED}"),
    ("mqtt://[fe80::1%eth0]", f"has a % without two hexadecimal digits behind it: {RESERVED}"),
    ("mqtt://u:secret%ff@h", "a part of it is not UTF-8 text where % is decoded"),
    ("mqtt://u:sec ret@h", "has a space or a control character, which is written as %20 and so on"),
    ("unix://h/x", "a Unix socket has a path and no host: unix:///PATH"),
    ("unix://", "a Unix socket has a path and no host: unix:///PATH"),
    ("mqtt://h?keep_aliv=1", "keep_aliv in its query: unknown key; did you mean keep_alive?"),
    ("mqtt://h?a%20b=1", '"a b" in its query: unknown key'),
    ("mqtt://u:12?secret=1@h", f"unknown key in its query: {RESERVED}"),
    ("mqtt://h?password=secret", "password cannot stand in its query"),
    ("mqtt://h?keep_alive=1&keep_alive=2", "keep_alive stands twice in its query"),
    ("mqtt://h?keep_alive", "its query is not of the form ?KEY=VALUE&KEY=VALUE"),
    ("mqtt://u:12?secret@h", "its query is not of the form ?KEY=VALUE&KEY=VALUE"),
    ("mqtt://h?client_id=%ff", "its query is not UTF-8 text"),
)


@pytest.mark.parametrize(("url", "words"), BAD_URLS)
def test_bad_urls_are_refused_without_a_part_of_a_password(url: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ConnectionSettings.from_url(url)
    assert str(caught.value) == f"URL: url: {words}"
    assert "sec" not in str(caught.value).replace("seconds", "")


def test_bad_values_in_a_query_are_those_of_their_key() -> None:
    with pytest.raises(ConfigError, match='^URL: keep_alive: "x": accepted is whole seconds'):
        ConnectionSettings.from_url("mqtt://h?keep_alive=x")


def test_a_url_is_text(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text("url = 5\n")
    with pytest.raises(ConfigError, match="client.toml: url: has no scheme"):
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


@pytest.mark.parametrize("key", ["port", "keep_alive", "receive_maximum", "max_inflight", "max_packet_size"])
def test_numbers(key: str) -> None:
    settings = ConnectionSettings.from_environment({f"TRUNKLINE_MQTT_{key.upper()}": "99"})
    assert getattr(settings, key) == 99
    if key != "port":  # which stands elsewhere in a URL
        assert getattr(ConnectionSettings.from_url(f"mqtt://h?{key}=99"), key) == 99


def test_variables_of_broker_and_client_stand_side_by_side() -> None:
    """And mistakes in either are found."""
    ours = {PREFIX + name.upper() for name in ConnectionSettings.model_fields}
    assert {variable(path).replace("__", "_") for path in key_paths()} & ours == CLIENT_VARIABLES
    environ = {**dict.fromkeys(CLIENT_VARIABLES, "100"), "TRUNKLINE_MQTT_HOST": "h", "TRUNKLINE_MQTT__MAX_QOS": "1"}
    assert load(None, environ).config.mqtt.max_qos == 1
    assert ConnectionSettings.from_environment(environ).receive_maximum == 100
    with pytest.raises(ConfigError, match="^variable TRUNKLINE_MQTT_MAX_QOS: sets nothing; did you mean TRUNKLINE_M"):
        load(None, {"TRUNKLINE_MQTT_MAX_QOS": "1"})
    for wrong, meant in (("HOST", "HOST"), ("URL", "URL"), ("USERNAME", "USERNAME")):
        name = f"TRUNKLINE_MQTT__{wrong}"
        with pytest.raises(ConfigError, match=f"^variable {name}: sets nothing; did you mean TRUNKLINE_MQTT_{meant}.$"):
            ConnectionSettings.from_environment({name: "x"})
        with pytest.raises(ConfigError, match=f"^variable {name}: unknown key"):
            load(None, {name: "x"})


def test_variables_are_text() -> None:
    with pytest.raises(ConfigError, match="^variable TRUNKLINE_MQTT_HOST: is not UTF-8 text$"):
        ConnectionSettings.from_environment({"TRUNKLINE_MQTT_HOST": os.fsdecode(b"\xff")})


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
