import re
from pathlib import Path

import pytest

from tests.config.problems import refusal
from trunkline.config.errors import ConfigError
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.reader import from_mapping, load


def listener(url: str) -> ListenerSettings:
    (found,) = from_mapping({"listeners": [url], "auth": {"allow_anonymous": True}}).listeners
    return found


def test_listener_from_its_url() -> None:
    listener = ListenerSettings.model_validate("tcp://[::1]:1884")
    assert (listener.host, listener.port, listener.label, listener.loopback) == ("::1", 1884, "tcp://[::1]:1884", True)
    assert ListenerSettings(url="tcp://0.0.0.0", name="outside").label == "outside"


def test_a_copy_with_another_url_has_its_address() -> None:
    listener = ListenerSettings(url="tcp://127.0.0.1:0")
    assert listener.port == 0
    assert listener.model_copy(update={"url": "tcp://127.0.0.1:1884"}).port == 1884


def test_settings_in_the_query_of_a_url() -> None:
    found = listener("tcp://127.0.0.1:1?name=plant&max_connections=10&versions=5.0,3.1.1&allow_anonymous=no")
    assert (found.label, found.max_connections, found.versions) == ("plant", 10, ("5.0", "3.1.1"))
    assert found.allow_anonymous is False
    assert found.url == "tcp://127.0.0.1:1"
    assert listener("mqtt://127.0.0.1:1?access_rules=deny 10.0.0.0/8,allow all").label == "mqtt://127.0.0.1:1"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("tcp://127.0.0.1?nam=x", "listeners[0]: tcp://127.0.0.1 has an unknown parameter, nam; did you mean name?"),
        ("tls://127.0.0.1?crt=x", "listeners[0]: tls://127.0.0.1 has an unknown parameter, crt; did you mean cert?"),
        ("tcp://127.0.0.1?zzz=x", "listeners[0]: tcp://127.0.0.1 has an unknown parameter, zzz"),
        ("tcp://127.0.0.1?url=x", "listeners[0]: tcp://127.0.0.1 has an unknown parameter, url"),
        ("tcp://127.0.0.1?x.zzz=x", "listeners[0]: tcp://127.0.0.1 has an unknown parameter, x.zzz"),
        ("tcp://127.0.0.1?name=x&name=y", "listeners[0]: the query of tcp://127.0.0.1 has a parameter twice"),
        (
            "tcp://127.0.0.1?name",
            "listeners[0]: the query of tcp://127.0.0.1 is not of the form ?NAME=VALUE&NAME=VALUE",
        ),
        (
            {"url": "tcp://127.0.0.1?name=x", "name": "y"},
            "listeners[0]: tcp://127.0.0.1 has the parameter name, which is a key of its table too",
        ),
        (
            {"url": "tls://127.0.0.1?cert=x", "tls": 5},
            "listeners[0]: tls is not a table: tls://127.0.0.1 sets cert in it",
        ),
        (
            "tcp://127.0.0.1?proxy_protocol.username_from=cn",
            "listeners[0].proxy_protocol: username_from needs trusted",
        ),
        (
            "wss://127.0.0.1?cert=x&tls.handshake_first=never",
            "listeners[0]: wss://127.0.0.1: tls.handshake_first and handshake_wait are about nats+tls://",
        ),
        (
            "nats+tls://h",
            "listeners[0]: nats+tls://h needs a certificate: tls.certificate, or ?cert=FILE&key=FILE in the URL",
        ),
        (
            "nats+ws://127.0.0.1?cert=x",
            "listeners[0]: nats+ws://127.0.0.1 has settings of TLS, and does not use it: its URL would be nats+wss://",
        ),
        (
            "nats://127.0.0.1?cert=x",
            "listeners[0]: nats://127.0.0.1 has settings of TLS, and does not use it: its URL would be nats+tls://",
        ),
        (
            "nats+tls://h?cert=x&websocket.origins=https://a.example",
            "listeners[0]: nats+tls://h has settings of WebSocket, and does not use it: its URL would be nats+wss://",
        ),
        (
            "nats+ws://127.0.0.1?mountpoint=a/",
            "listeners[0]: nats+ws://127.0.0.1: mountpoint and versions are about MQTT, and NATS is spoken there",
        ),
        ("tcp://127.0.0.1?backlog=0", "listeners[0].backlog: 0: accepted is a whole number, 1 or more"),
    ],
)
def test_invalid_query(given: object, text: str) -> None:
    assert refusal(given) == text


def test_files_in_a_query_are_in_the_folder_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "users").touch()
    file = tmp_path / "broker.toml"
    file.write_text('listeners = ["tcp://127.0.0.1:1?password_file=users"]')
    assert load(file, {}).config.listeners[0].password_file == tmp_path / "users"


def test_rules_about_addresses_are_not_for_unix_sockets() -> None:
    assert "clients of a Unix socket do not have" in refusal({"url": "unix:///a", "access_rules": ["deny all"]})


def test_two_listeners_with_one_path() -> None:
    table = {"listeners": [{"name": "one", "url": "unix:///a"}, {"name": "two", "url": "unix:///a"}]}
    with pytest.raises(ConfigError, match=r"listeners\[1\]: listeners\[0\] takes that path: unix:///a"):
        from_mapping(table)


def test_where_systemd_listens_is_not_known() -> None:
    assert not ListenerSettings(url="tcp://127.0.0.1", systemd_socket="mqtt").loopback
    assert ListenerSettings(url="unix:///a").loopback


@pytest.mark.parametrize("key", ["access_rules", "socket_mode"])
@pytest.mark.parametrize("value", ["allow", "permit all", "deny 10.0.0.0/33", "0888", "rw"])
def test_invalid_rules_and_modes(key: str, value: str) -> None:
    assert "accepted is" in refusal({"url": "unix:///a", key: [value] if key == "access_rules" else value})


def test_an_unknown_placeholder_in_a_mountpoint_is_refused() -> None:
    problem = refusal({"url": "tcp://127.0.0.1", "mountpoint": "%u/%x/%c/"})
    assert "mountpoint has an unknown placeholder, %x: there are %c and %u" in problem
    for mountpoint in ("%u/%c/", "100%/a/"):
        settings = {"url": "tcp://127.0.0.1", "mountpoint": mountpoint}
        assert ListenerSettings.model_validate(settings).mountpoint == mountpoint


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:99999", "tcp://127.0.0.1:abc", "tcp://[::1"])
def test_an_invalid_url_is_quoted(url: str) -> None:
    assert re.search(f'"{re.escape(url)}": .+; accepted is "tcp://HOST:PORT"', refusal(url))
