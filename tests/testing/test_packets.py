"""Whole packets are found in any pieces, and nothing is lost or invented."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance import raw
from trunkline.mqtt.packets import Connect, PacketType, Publish
from trunkline.mqtt.versions import Version
from trunkline.testing.packets import FROM, PACKETS, TO, Packet, Splitter, decode

SAMPLES = [
    raw.PINGREQ,
    raw.connect("a", password="secret", username="ann"),
    raw.publish("t", b"x" * 200, qos=1, packet_id=7),
    raw.publish("t", b"x" * 20_000),
    raw.ack(raw.PUBACK, 7),
    raw.disconnect(),
]


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    return [data[one:other] for one, other in pairwise(places)]


@given(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=6), st.lists(st.integers(0, 100_000), max_size=8))
def test_packets_are_found_in_whatever_pieces_they_come(packets: list[bytes], cuts: list[int]) -> None:
    splitter, found = Splitter(), list[bytes]()
    for piece in pieces(b"".join(packets), cuts):
        found += splitter.feed(piece)
    assert found == packets


def test_packets_are_found_byte_by_byte() -> None:
    splitter, found = Splitter(), list[bytes]()
    for byte in b"".join(SAMPLES[:3]):
        found += splitter.feed(bytes([byte]))
    assert found == SAMPLES[:3]


@pytest.mark.parametrize("noise", [b"\x30\xff\xff\xff\xff\x01", b"\x10\xff\xff\xff\xff"])
def test_what_is_no_packet_ends_the_search(noise: bytes) -> None:
    splitter = Splitter()
    assert splitter.feed(raw.PINGREQ + noise + raw.PINGREQ) == [raw.PINGREQ]
    assert splitter.broken
    assert splitter.rest == noise + raw.PINGREQ
    assert splitter.feed(raw.PINGREQ) == []
    assert splitter.rest == raw.PINGREQ


def test_a_packet_that_claims_more_than_the_limit_is_not_waited_for() -> None:
    splitter = Splitter(limit=100)
    exact = raw.publish("t", b"x" * 94)
    assert len(exact) == 100
    assert splitter.feed(exact) == [exact]
    assert splitter.feed(raw.publish("t", b"x" * 95)[:2]) == []
    assert splitter.broken


def test_a_packet_is_decoded_when_somebody_looks() -> None:
    connect = Packet(raw.connect("a", version=4), FROM, "", None)
    assert connect.type is PacketType.CONNECT
    assert isinstance(connect.decoded, Connect)
    assert connect.decoded.version is Version.V311
    publish = Packet(raw.publish("t", b"x", qos=1, packet_id=7), TO, "a", Version.V5)
    assert isinstance(publish.decoded, Publish)
    assert publish.decoded is publish.decoded
    assert (publish.decoded.topic, publish.decoded.packet_id) == ("t", 7)
    assert repr(publish) == "<PUBLISH to 'a'>"


def test_what_cannot_be_decoded_is_nothing() -> None:
    assert decode(raw.packet(raw.PUBACK, b"\0"), FROM, Version.V5) is None
    assert decode(raw.PINGREQ, FROM, None) is None, "no CONNECT came before"
    assert decode(raw.PINGREQ, TO, Version.V5) is None, "a broker sends no PINGREQ"


def test_an_alias_stands_for_the_topic_that_it_was_made_for() -> None:
    aliases = dict[int, str]()
    made = Packet(raw.publish("long/name", b"1", properties=raw.topic_alias(3)), FROM, "a", Version.V5)
    used = Packet(raw.publish("", b"2", properties=raw.topic_alias(3)), FROM, "a", Version.V5)
    plain = Packet(raw.publish("other", b"3", qos=2, packet_id=5), FROM, "a", Version.V5)
    for packet in (made, used, plain):
        packet.resolve(aliases, lambda alias: "")
    assert [packet.decoded.topic for packet in (made, used, plain) if isinstance(packet.decoded, Publish)] == [
        "long/name",
        "long/name",
        "other",
    ]
    assert aliases == {3: "long/name"}
    other = Packet(raw.publish("", b"4", properties=raw.topic_alias(4)), FROM, "a", Version.V5)
    other.resolve(aliases, {4: "made/before"}.__getitem__)
    assert isinstance(other.decoded, Publish)
    assert other.decoded.topic == "made/before"


def test_every_packet_has_a_direction() -> None:
    assert PACKETS[FROM] | PACKETS[TO] == set(PacketType) - {PacketType.WILL}
