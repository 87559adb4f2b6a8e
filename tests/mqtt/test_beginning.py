"""The client id and the version of a CONNECT, from as few of its bytes as have come."""

import pytest

from tests.conformance import raw
from trunkline.mqtt.beginning import UNREADABLE, Beginning, beginning_of
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.packets import Connect
from trunkline.mqtt.versions import Version

LARGEST = 1_048_576
WILL = raw.Will("w", b"x" * 300)
VALID = [
    raw.connect("a"),
    raw.connect(""),
    raw.connect("ä" * 100, version=4),
    raw.connect("old", version=3),
    raw.connect("bridge", version=0x84, flags=2),
    raw.connect("older bridge", version=0x83, name="MQIsdp", flags=2),
    raw.connect("x" * 65_535, version=4),
    raw.connect("will", will=WILL, username="u", password="p"),
    raw.connect("properties", properties=raw.user_property("k", "v" * 200) + raw.session_expiry(7)),
    raw.connect("more properties", properties=raw.user_property("k", "v" * 20_000)),
    b"\x1f" + raw.connect("flags", version=3)[1:],
]
INVALID = {
    "another packet": raw.PINGREQ,
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "a length of five bytes": bytes.fromhex("10 ff ff ff ff 01"),
    "another name": raw.connect("a", name="AMQP"),
    "another level": raw.connect("a", version=6),
    "a name that ends with the packet": bytes.fromhex("10 04 00 04 4d 51"),
    "it ends in the flags": bytes.fromhex("10 08 00 04 4d 51 54 54 04 02"),
    "it ends in the properties": bytes.fromhex("10 0b 00 04 4d 51 54 54 05 02 00 00 ff"),
    "properties of five bytes of length": raw.packet(0x10, b"\0\4MQTT\5\2\0\0", b"\xff" * 5),
    "properties beyond its end": raw.packet(0x10, b"\0\4MQTT\5\2\0\0", b"\x7f\0\0"),
    "a client id beyond its end": raw.packet(0x10, b"\0\4MQTT\4\2\0\0", b"\0\7abc"),
    "a client id that is no UTF-8": raw.connect(b"\xff\xfe"),
    "too large": raw.packet(0x10, b"\0\4MQTT\4\2\0\0", bytes(LARGEST)),
}


def decoded(data: bytes) -> Beginning:
    (packet,) = Decoder().feed(data)
    assert isinstance(packet, Connect)
    return Beginning(packet.client_id, packet.version)


@pytest.mark.parametrize("data", VALID, ids=range(len(VALID)))
def test_it_is_what_the_decoder_finds(data: bytes) -> None:
    wanted = decoded(data)
    assert beginning_of(data, LARGEST) == wanted
    assert beginning_of(bytearray(data + raw.PINGREQ * 10), LARGEST) == wanted


@pytest.mark.parametrize("data", VALID, ids=range(len(VALID)))
def test_it_is_known_as_soon_as_the_client_id_has_come(data: bytes) -> None:
    wanted = decoded(data)
    name = wanted.client_id.encode()
    known_at = data.index(len(name).to_bytes(2, "big") + name, 12) + 2 + len(name) if name else 15
    for size in [*range(min(known_at, 400)), known_at - 1]:
        assert beginning_of(data[:size], LARGEST) is None, size
    assert beginning_of(data[:known_at], LARGEST) == wanted


@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID)
def test_what_is_none_says_so_and_never_later_than_the_decoder(data: bytes) -> None:
    assert beginning_of(data, LARGEST) is UNREADABLE
    for size in range(min(len(data), 100)):
        if beginning_of(data[:size], LARGEST) is None:
            decoder = Decoder(max_connect_size=LARGEST)
            assert decoder.feed(data[:size]) == []
            assert decoder.error is None


def test_what_nobody_can_read_has_no_version() -> None:
    assert Beginning("", None) == UNREADABLE
    assert Version.V5 is decoded(VALID[0]).version
