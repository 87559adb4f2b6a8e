"""What goes with a descriptor comes out as it went in, and nothing else comes out."""

import socket
from collections.abc import Iterator

import pytest

from trunkline.broker.net.passed import MAX_FIRST, PassedConnection
from trunkline.broker.shards.passed_frames import MAX_FRAME, About, BadPassage, cut, frame_of
from trunkline.hooks.identity import Certificate, Identity
from trunkline.mqtt.packing import pack

CERTIFICATE = Certificate(
    "device", "CN=device", "0f", (("DNS", "a.example"), ("DNS", "b.example")), "ab", 1.5, ("device",)
)
IDENTITY = Identity(CERTIFICATE, "", "user", "device", "TLSv1.3", "AES", "broker.example", "mqtt", True)
ABOUT = [
    About("tcp://*:1883", ("192.0.2.1", 4711), None, b"\x10\0", False),
    About("ä", ("fe80::1%eth0", 1), Identity(psk="key"), b"", True),
    About("tls", None, IDENTITY, bytes(MAX_FIRST), True),
]


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as made:
        yield made


@pytest.mark.parametrize("about", ABOUT, ids=range(3))
def test_a_frame_tells_everything(sock: socket.socket, about: About) -> None:
    frame = frame_of(PassedConnection(sock, *about, refusal=b"not told"))
    assert len(frame) <= MAX_FRAME
    buffer = bytearray()
    for byte in frame:
        assert cut(buffer) is None
        buffer.append(byte)
    buffer += frame
    assert cut(buffer) == about
    assert cut(buffer) == about
    assert not buffer


@pytest.mark.parametrize(
    "data",
    [
        pack(("x", None, None, b"", False))[:-1],
        pack(("x", None, None, b"")),
        pack(("x", None, {"certificate": None, "more": 1}, b"", False)),
        pack(("x", None, {}, b"", False)),
        pack(("x", (), None, b"", False)),
        pack(7),
        b"",
    ],
    ids=range(7),
)
def test_another_frame_is_an_error(data: bytes) -> None:
    with pytest.raises(BadPassage):
        cut(bytearray(len(data).to_bytes(4, "big") + data))


def test_no_frame_is_larger_than_allowed() -> None:
    with pytest.raises(BadPassage, match="a frame of 65537 bytes"):
        cut(bytearray((MAX_FRAME - 3).to_bytes(4, "big")))
