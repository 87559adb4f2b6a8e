import random
import tracemalloc
from dataclasses import fields

import pytest

from tests.mqtt.cases import publish
from tests.mqtt.exchange import CONNECT, V5, V31, V311, all_same, decoder_for, same, wire
from trunkline.mqtt.decoder import MAX_PACKET_SIZE, Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.errors import PacketTooLarge
from trunkline.mqtt.packets import Connect, Packet, Pingreq, Puback, Publish
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

MALFORMED, VIOLATION = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR


def reason_after(decoder: Decoder, data: bytes | str) -> int | None:
    assert decoder.feed(wire(data) if isinstance(data, str) else data) == []
    return None if decoder.error is None else decoder.error.reason


# Judging early


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("first", range(256))
def test_a_wrong_first_byte_is_refused_alone(version: Version, first: int) -> None:
    """[MQTT-2.1.3-1] [MQTT-3.3.1-2] [MQTT-3.3.1-4] [MQTT3-2.2.2-2]"""
    good = {0x30, 0x31, *range(0x32, 0x36), *range(0x3A, 0x3E), 0x40, 0x50, 0x62, 0x70, 0x82, 0xA2, 0xC0, 0xE0}
    if version is V5:
        good.add(0xF0)
    if version is V31:
        good |= {0x6A, 0x8A, 0xAA}
    decoder = decoder_for(version)
    reason = reason_after(decoder, bytes((first,)))
    if first in good:
        assert reason is None
        assert decoder.buffered == 1
        return
    assert decoder.buffered == 0
    wrong_flags = first >> 4 in {known >> 4 for known in good}
    assert reason == (MALFORMED if first < 16 or wrong_flags else VIOLATION)


@pytest.mark.parametrize("first", [first for first in range(256) if first >> 4 != 1])
def test_a_first_packet_must_be_connect(first: int) -> None:
    """[MQTT-3.1.0-1] [MQTT3-3.1.0-1]"""
    for claimed in ("", "ff", "ffffff7f", "00"):
        assert reason_after(Decoder(), bytes((first,)) + wire(claimed)) == (VIOLATION if first > 15 else MALFORMED)


def test_a_second_connect_is_refused_by_its_first_byte() -> None:
    """[MQTT-3.1.0-2] [MQTT3-3.1.0-2]"""
    for version, data in CONNECT.items():
        decoder = Decoder()
        assert decoder.feed(wire(data) + b"\x10") == [Connect("c", version)]
        assert decoder.error is not None
        assert decoder.error.reason == VIOLATION


def test_flags_of_connect_are_refused_by_the_name_that_follows() -> None:
    """[MQTT-2.1.3-1] [MQTT3-2.2.2-1]"""
    data = wire("12 ffffff7f 0004")
    for cut in range(len(data)):
        decoder = Decoder()
        assert reason_after(decoder, data[:cut]) is None
        assert reason_after(decoder, data[cut:]) == MALFORMED
    decoder = Decoder()
    assert reason_after(decoder, "12 ffffff7f 0006 4d51497364") is None
    assert reason_after(decoder, "6f") == MALFORMED


@pytest.mark.parametrize("server", [True, False])
@pytest.mark.parametrize("version", Version)
def test_a_fifth_length_byte_is_refused(version: Version, server: bool) -> None:
    decoder = decoder_for(version, server)
    assert reason_after(decoder, "30 ffffff") is None
    assert reason_after(decoder, "ff") == MALFORMED
    assert reason_after(decoder_for(version, server), "30 80808080 01") == MALFORMED
    assert reason_after(Decoder(), "10 ffffffff") == MALFORMED


def test_a_length_longer_than_it_need_be() -> None:
    """Refused by 5.0, where it is forbidden: [MQTT-1.5.5-1]. Some devices of 3.1.1 always write two bytes."""
    for data in ("30 8400 0001 6100", "30 848000 0001 6100", "30 84808000 0001 6100", "c0 8000"):
        decoder = decoder_for(V5)
        assert decoder.feed(wire(data)) == []
        assert decoder.error is not None
        assert decoder.error.reason == MALFORMED
        assert len(decoder_for(V311).feed(wire(data))) == 1


def test_a_padded_length_leaves_nothing_to_pass_on() -> None:
    decoder = decoder_for(V311)
    padded, plain = decoder.feed(wire("30 8400 0001 6178") + wire("30 04 0001 6178"))
    assert same(padded, plain)
    assert isinstance(padded, Publish)
    assert isinstance(plain, Publish)
    assert (padded.wire3, plain.wire3) == (None, wire("30 04 0001 6178"))


# Sizes


def test_a_packet_that_is_too_large_is_refused_by_its_header() -> None:
    """[MQTT-3.1.2-24] [MQTT-3.2.2-15]"""
    decoder = Decoder(version=V5, max_packet_size=1000)
    assert reason_after(decoder, "30 e6") is None
    assert reason_after(decoder, "07") == Reason.PACKET_TOO_LARGE  # 1,001 bytes
    assert isinstance(decoder.error, PacketTooLarge)
    assert decoder.buffered == 0


@pytest.mark.parametrize("limit", [4, 20, 129, 130, 200, 16_386, 16_387, 16_388, 40_000])
@pytest.mark.parametrize("version", [V311, V5])
def test_the_limit_counts_the_whole_packet(limit: int, version: Version) -> None:
    for known in (True, False):
        for size, fits in ((limit, True), (limit + 1, False)):
            overhead = 5 + (version is V5) + (size > 129) + (size > 16_386)
            payload = bytes(size - overhead) if size >= overhead else b""
            data = encode(publish("a", payload), version)
            if len(data) != size:
                continue  # there is no packet of that size
            decoder = Decoder(version=version, max_packet_size=limit)
            small = encode(publish("a"), version) if known and limit > 6 else b""
            packets = decoder.feed(small + data)
            assert len(packets) == (small != b"") + fits
            assert (decoder.error is None) == fits


def test_connect_has_a_limit_of_its_own() -> None:
    decoder = Decoder(max_packet_size=10**6, max_connect_size=100)
    assert reason_after(decoder, "10 63") == Reason.PACKET_TOO_LARGE
    decoder = Decoder(max_packet_size=10**6, max_connect_size=100)
    assert len(decoder.feed(wire(CONNECT[V311]))) == 1
    assert len(decoder.feed(encode(publish("a", bytes(1000)), V311))) == 1
    assert Decoder(max_packet_size=10, max_connect_size=100).max_connect_size == 10


def test_a_claim_costs_nothing() -> None:
    data = wire("10 ffff ff6d") + wire("0004 4d515454 05")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        decoders = [Decoder() for _ in range(14)]
        for decoder in decoders:
            assert decoder.feed(data) == []
            assert decoder.buffered == len(data)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held - before < 14 * 2000
    assert peak - before < 14 * 3000
    assert MAX_PACKET_SIZE > 230_000_000


# Pieces


@pytest.mark.parametrize("chunk", [1, 3, 4095, 4096, 65_536, 10**6])
def test_a_large_packet_in_pieces(chunk: int) -> None:
    size = 60_000 if chunk < 10 else 3_000_000
    payload = random.Random(chunk).randbytes(size)
    data = encode(publish("a", payload, 1, packet_id=3), V5) + encode(Puback(4), V5)
    decoder = decoder_for(V5)
    packets: list[Packet] = []
    for start in range(0, len(data), chunk):
        packets += decoder.feed(data[start : start + chunk])
    assert all_same(packets, [publish("a", payload, 1, packet_id=3), Puback(4)])


def test_held_packets_can_be_told_apart() -> None:
    decoder = decoder_for(V5)
    packet = encode(publish("a", bytes(300)), V5)
    for byte in packet[:-1]:
        decoder.feed(bytes([byte]))
        assert (decoder.resumed, bool(decoder.buffered)) == (0, True)
    decoder.feed(packet[-1:] + packet[:100])
    assert (decoder.resumed, decoder.buffered) == (1, 100)
    decoder.feed(packet[100:] + packet + packet[:2])
    assert (decoder.resumed, decoder.buffered) == (2, 2)


def test_small_pieces_are_gathered() -> None:
    """A peer that sends two bytes at a time must not make us keep 30 for each."""
    decoder = decoder_for(V5)
    decoder.feed(wire("30 ffff3f 0001 61 00"))
    piece = b"xy"
    tracemalloc.start()
    try:
        for _ in range(100_000):
            decoder.feed(piece)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert decoder.buffered == 200_008
    assert held < 300_000


def test_many_pieces_are_joined_once() -> None:
    """The work is linear: the chunks are only touched when the last is here."""
    decoder = decoder_for(V311)
    chunk = bytes(65_536)
    decoder.feed(wire("30 ffffff 6d"))
    tracemalloc.start()
    try:
        for _ in range(200):
            assert decoder.feed(chunk) == []
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The same object each time: nothing of it was copied.
    assert held < 10_000
    assert peak < 10_000


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("version", Version)
def test_any_stream_cut_anywhere(version: Version, seed: int) -> None:
    dice = random.Random(seed)
    topics = ["a", "sensors/1/temperature", "ä/" * 20, "b" * 300]
    packets: list[Packet] = []
    for _ in range(60):
        qos = dice.choice((0, 0, 0, 1, 2))
        message = publish(
            dice.choice(topics),
            bytes(dice.choice((0, 1, 3, 3, 3, 118, 119, 120, 5000, 20_000))),
            qos,
            dice.random() < 0.2,
            packet_id=dice.randrange(1, 65_536) if qos else 0,
            dup=qos > 0 and dice.random() < 0.1,
            properties={"content_type": "x"} if version is V5 and dice.random() < 0.1 else None,
        )
        packets += dice.choice(([message], [message] * 5, [message, Puback(9)], [Pingreq(), message]))
    data = b"".join(encode(packet, version) for packet in packets)
    decoder = decoder_for(version)
    decoded: list[Packet] = []
    position = 0
    while position < len(data):
        step = dice.choice((1, 2, 3, 7, 100, 1000, 65_536))
        decoded += decoder.feed(data[position : position + step])
        position += step
    assert decoder.error is None
    assert all_same(decoded, packets)
    assert decoder.buffered == 0


def test_nothing_is_nothing() -> None:
    for decoder in (Decoder(), decoder_for(V5)):
        assert decoder.feed(b"") == []
        assert decoder.buffered == 0


# Errors


def test_what_came_before_the_bad_packet_is_returned() -> None:
    decoder = Decoder()
    packets = decoder.feed(wire(CONNECT[V5]) + wire("c000 30040001 6100 00 c000"))
    assert [type(packet) for packet in packets] == [Connect, Pingreq, Publish]
    assert decoder.error is not None
    assert decoder.error.reason == MALFORMED


def test_nothing_is_decoded_after_an_error() -> None:
    decoder = decoder_for(V5)
    decoder.feed(b"\0")
    error = decoder.error
    assert error is not None
    assert decoder.feed(wire("c000")) == []
    assert decoder.feed(b"\0") == []
    assert decoder.error is error
    assert decoder.buffered == 0


def test_an_error_in_a_packet_that_came_in_pieces() -> None:
    decoder = decoder_for(V5)
    assert decoder.feed(wire("c000 32 06 0001")) == [Pingreq()]
    assert decoder.feed(wire("61 0000 00 c000")) == []
    assert decoder.error is not None
    assert decoder.error.reason == VIOLATION
    assert decoder.buffered == 0


def test_a_clients_decoder_needs_a_version() -> None:
    with pytest.raises(ValueError, match="version"):
        Decoder(server=False)


def test_the_version_comes_from_connect() -> None:
    for version, data in CONNECT.items():
        decoder = Decoder()
        assert decoder.version is None
        assert decoder.feed(wire(data)) == [Connect("c", version)]
        assert decoder.version is version


# What PUBLISH packets bring along


@pytest.mark.parametrize("version", Version)
def test_qos_0_keeps_the_bytes_that_subscribers_get(version: Version) -> None:
    decoder = decoder_for(version)
    data = encode(publish("a/b", b"x"), version)
    # The first of a topic, the second, those of a streak, one of another length, one in pieces.
    other = encode(publish("a/b", b"longer"), version)
    packets = decoder.feed(data * 6 + other + data[:4]) + decoder.feed(data[4:])
    for packet, expected in zip(packets, [data] * 6 + [other, data], strict=True):
        assert isinstance(packet, Publish)
        assert (packet.wire5 if version is V5 else packet.wire3) == expected
        assert (packet.wire3 if version is V5 else packet.wire5) is None


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (V311, "31 04 0001 6178"),
        (V5, "31 05 0001 61 00 78"),
        (V5, "30 07 0001 61 02 0101 78"),
        (V5, "30 0a 0001 61 05 2600000000 78"),
    ],
)
def test_what_would_be_written_otherwise_is_not_kept(version: Version, data: str) -> None:
    for packet in decoder_for(version).feed(wire(data) * 3):
        assert isinstance(packet, Publish)
        assert (packet.wire3, packet.wire5, packet.frames) == (None, None, None)


@pytest.mark.parametrize(("version", "data"), [(V311, "32 06 0001 61 0001 78"), (V5, "34 07 0001 61 0001 00 78")])
def test_what_came_with_a_packet_identifier_goes_out_as_it_came_with_another(version: Version, data: str) -> None:
    came = wire(data)
    for packet in decoder_for(version).feed(came * 2)[1:]:
        assert isinstance(packet, Publish)
        assert packet.frames is not None
        assert b"".join(packet.numbered(version, packet.qos, False, range(1, 2))) == came


def test_messages_of_a_streak_have_every_field() -> None:
    """They are made without their constructor."""
    for version in Version:
        packets = decoder_for(version).feed(encode(publish("a", b"x"), version) * 10)
        for packet in packets:
            assert same(packet, publish("a", b"x"))
            for item in fields(Publish):
                getattr(packet, item.name)


def test_topics_that_are_remembered_are_few_and_short() -> None:
    decoder = decoder_for(V311)
    for number in range(5000):
        [packet] = decoder.feed(encode(publish(f"t/{number}"), V311))
        assert isinstance(packet, Publish)
        assert packet.topic == f"t/{number}"
    assert len(decoder._topics) <= 1024  # pyright: ignore[reportPrivateUsage]
    decoder = decoder_for(V311)
    decoder.feed(encode(publish("x" * 1000), V311))
    assert decoder._topics == {}  # pyright: ignore[reportPrivateUsage]


def test_topics_that_are_remembered_are_bounded_by_their_bytes() -> None:
    decoder = decoder_for(V311)
    largest = 0
    for number in range(2000):
        decoder.feed(encode(publish(f"{number:0250}"), V311))
        decoder.feed(encode(publish(f"{number:0250}", qos=1, packet_id=1, dup=True), V311))  # known: not counted again
        names = decoder._topics  # pyright: ignore[reportPrivateUsage]
        largest = max(largest, sum(map(len, names)))
    assert 65_000 < largest <= 65_536


def test_a_remembered_topic_is_one_string() -> None:
    decoder = decoder_for(V5)
    packets = decoder.feed(encode(publish("some/topic"), V5) * 5)
    assert len({id(packet.topic) for packet in packets if isinstance(packet, Publish)}) == 1


def test_a_topic_that_runs_past_its_packet_is_refused_although_it_is_known() -> None:
    """The bytes that follow complete a name that was seen before."""
    decoder = decoder_for(V311)
    decoder.feed(wire("30 06 0004 61303061"))
    assert decoder.feed(wire("30 03 0004 61") + wire("303061 00")) == []
    assert decoder.error is not None
    assert decoder.error.reason == MALFORMED
    decoder = decoder_for(V5)
    decoder.feed(wire("30 04 0001 61 00"))
    assert decoder.feed(wire("30 03 0001 61")) == []
    assert decoder.error is not None


def test_a_long_topic_is_not_taken_for_a_short_one_that_is_known() -> None:
    """Its length ends like that of the known one, and so does its beginning."""
    decoder = decoder_for(V311)
    for known in ("aa", "\u0001\u0001aa"):
        decoder.strict_utf8 = False
        decoder.feed(encode(publish(known), V311))
    for length in (0x0102, 0x0104, 0x0202):
        [packet] = decoder.feed(encode(publish("a" * length, b"x"), V311))
        assert same(packet, publish("a" * length, b"x"))
