import re

import pytest

from trunkline.config import listener_settings
from trunkline.config.addresses import ListenerAddress, TakenAddresses, is_loopback, shown_address, split_listener_url
from trunkline.config.reader import from_mapping


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("tcp://127.0.0.1:1884", ("tcp", "127.0.0.1", 1884, "")),
        ("tcp://localhost", ("tcp", "localhost", 1883, "")),
        ("tcp://[::]:0", ("tcp", "::", 0, "")),
        ("mqtt://*", ("tcp", "*", 1883, "")),
        ("mqtts://h", ("tls", "h", 8883, "")),
        ("ws://h", ("ws", "h", 8083, "/mqtt")),
        ("ws://h/", ("ws", "h", 8083, "/mqtt")),
        ("wss://h/a/b", ("wss", "h", 8084, "/a/b")),
        ("unix:///run/a%20b.sock", ("unix", "", 0, "/run/a b.sock")),
    ],
)
def test_listener_url(url: str, parts: tuple[str, str, int, str]) -> None:
    assert split_listener_url(url) == parts


@pytest.mark.parametrize(
    "url",
    ["", "1883", "127.0.0.1:1883", "udp://h:1", "tcp://", "tcp://:1883", "tcp://h:", "tcp://h:x", "tcp://h:65536"]
    + ["tcp://h:1/mqtt", "tcp://h:1?a", "tcp://u@h:1", "tcp://::1:1883", "tcp://[::1"]
    + ["tcp://..:1", f"tcp://{'a' * 64}:1", "unix://run/a", "unix:a", "unix:///", "unix:///run/", "unix:///a%00"]
    + ["ws://h/a?b=c", "ws://h#a", "http://h"],
)
def test_no_listener_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        split_listener_url(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("127.0.0.1:1883", "no scheme"),
        ("http://h", "http is none of tcp, tls, ws, wss, unix, nats, nats+tls, nats+ws, nats+wss"),
        ("tcp://a b:1883", "a b cannot be the name of a host"),
        ("tcp://:1883", "no host; 0.0.0.0 and [::] are all addresses of this machine"),
        ("tcp://::1:1883", "an IPv6 address stands in brackets"),
        ("tcp://h:65536", "the port is a number, 0 to 65535"),
        ("tcp://h:-5", "the port is a number, 0 to 65535"),
        ("tcp://h:1/", "only URLs of WebSocket have a path"),
    ],
)
def test_what_is_wrong_is_said(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(reason)}$"):
        split_listener_url(url)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.0.1", "broker.example", "fe80::1%eth0", "localhost.example"]
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_the_first_keeps_an_address() -> None:
    taken = TakenAddresses[str]()
    assert taken.take(["10.0.0.1"], 1, "a") is None
    assert taken.take(["10.0.0.2", "fe80::1%eth0"], 1, "b") is None
    assert taken.take(["::"], 1, "c") == "b"
    assert taken.take(["0.0.0.0"], 1, "d") == "a"
    assert taken.take(["10.0.0.3"], 1, "e") == "d"
    assert taken.take(["10.0.0.3"], 0, "f") is None


def test_many_listeners_are_not_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(url: str) -> ListenerAddress:
        read.append(url)
        return split_listener_url(url)

    monkeypatch.setattr(listener_settings, "split_listener_url", counted)
    from_mapping({"listeners": [f"tcp://127.0.0.1:{port}" for port in range(1, 301)]})
    assert 300 <= len(read) <= 10 * 300


@pytest.mark.parametrize(
    ("address", "text"), [(("h", 1), "h:1"), (("::1", 1), "[::1]:1"), (("/run/mqtt.sock", 0), "/run/mqtt.sock")]
)
def test_shown_address(address: tuple[str, int], text: str) -> None:
    assert shown_address(address) == text
