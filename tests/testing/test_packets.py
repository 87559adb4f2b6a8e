"""Whole packets are found in any pieces, and nothing is lost or invented."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance import raw
from trunkline.mqtt.packets import PacketType
from trunkline.testing.packets import FROM, PACKETS, TO, Splitter

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


def test_every_packet_has_a_direction() -> None:
    assert PACKETS[FROM] | PACKETS[TO] == set(PacketType) - {PacketType.WILL}
