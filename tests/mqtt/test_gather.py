"""With `gathers` a decoder gives the same packets, some of them as one object."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mqtt.exchange import unfolded
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.gather import MANY
from trunkline.mqtt.packets import Acknowledgements, Pingreq, Puback, Pubcomp, Publish, Pubrec, Pubrel
from trunkline.mqtt.publication import Decoded, PublishBatch
from trunkline.mqtt.versions import Version

VERSIONS = [Version.V311, Version.V5]


def rows(packets: Iterable[Decoded]) -> list[object]:
    return [
        (p.topic, p.payload, p.qos, p.retain, p.dup, p.packet_id, p.wire3, p.wire5, dict(p.properties))
        if isinstance(p, Publish)
        else p
        for p in unfolded(packets)
    ]


def publish(topic: str, payload: bytes, qos: int, packet_id: int, *, retain: bool, dup: bool, key: bool) -> Publish:
    packet = Publish(topic, payload, qos, retain, {"correlation_data": b"k"} if key else {})
    packet.packet_id, packet.dup = packet_id if qos else 0, dup and qos > 0
    return packet


ids = st.integers(1, 65_535)
publishes = st.builds(
    publish,
    st.sampled_from(["a", "a", "b/c", "x" * 300]),
    st.sampled_from([b"", b"1", b"22", b"z" * 126, b"y" * 300]),
    st.sampled_from([0, 0, 1, 2]),
    ids,
    retain=st.sampled_from([False, False, False, True]),
    dup=st.sampled_from([False, False, False, True]),
    key=st.sampled_from([False, False, False, True]),
)
others = st.one_of(
    *[st.builds(kind, ids, st.sampled_from([0, 0, 0, 0x10, 0x80])) for kind in (Puback, Pubrec, Pubrel, Pubcomp)],
    st.builds(Pingreq),
)


def wire_of(packet: Publish | Puback | Pubrec | Pubrel | Pubcomp | Pingreq, version: Version) -> bytes:
    if isinstance(packet, Publish) and version != Version.V5:
        packet.properties = {}
    elif version != Version.V5 and not isinstance(packet, Pingreq):
        packet.reason = 0
    elif isinstance(packet, Pubrel | Pubcomp) and packet.reason:
        packet.reason = 0x92
    return encode(packet, version)


@given(
    st.sampled_from(VERSIONS),
    st.lists(st.tuples(st.one_of(publishes, others), st.integers(1, 4)), max_size=15),
    st.lists(st.integers(1, 400), max_size=6),
    st.sampled_from([b"", b"\x32\x05\0\1a\0\0", b"\x40\2\0\0", b"\x30\x80", b"\xf1", b"\x30\x02\0\1", b"\x36\0"]),
)
def test_the_same_packets_come_out_however_the_bytes_are_cut(
    version: Version, sent: list[tuple[Publish | Puback, int]], cuts: list[int], end: bytes
) -> None:
    data = b"".join([wire_of(packet, version) * times for packet, times in sent]) + end
    gathering, plain = Decoder(version=version, gathers=True), Decoder(version=version)
    found: list[Decoded] = []
    expected: list[Decoded] = []
    for cut in [*cuts, len(data)]:
        chunk, data = data[:cut], data[cut:]
        found += gathering.feed(chunk)
        expected += plain.feed(chunk)
    assert rows(found) == rows(expected)
    assert str(gathering.error) == str(plain.error)
    assert gathering.buffered == plain.buffered


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_alike_comes_as_one(version: Version) -> None:
    decoder = Decoder(version=version, gathers=True)
    message = encode(Publish("a", b"1"), version)
    acknowledgement = encode(Puback(5), version)
    decoder.feed(message)
    kinds = [type(packet) for packet in decoder.feed(3 * message + 2 * acknowledgement + message + acknowledgement)]
    assert kinds == [PublishBatch, Acknowledgements, Publish, Puback]


@pytest.mark.parametrize(
    ("tail", "reason"), [("", 0), ("00", 0), ("0000", 0), ("10", 0x10), ("1000", 0x10)], ids=lambda each: str(each)
)
@pytest.mark.parametrize("first", [0x40, 0x50, 0x62, 0x70])
@pytest.mark.parametrize("version", VERSIONS)
def test_acknowledgements_with_the_same_reason_come_as_one(
    version: Version, first: int, tail: str, reason: int
) -> None:
    packets = [
        bytes((first, 2 + len(tail) // 2)) + packet_id.to_bytes(2, "big") + bytes.fromhex(tail)
        for packet_id in (7, 300, 9)
    ]
    decoder, plain = Decoder(version=version, gathers=True), Decoder(version=version)
    found, expected = decoder.feed(b"".join(packets)), plain.feed(b"".join(packets))
    assert unfolded(found) == expected
    assert str(decoder.error) == str(plain.error)
    if (version is Version.V5 or not tail) and (not reason or first < 0x60):
        (run,) = found
        assert isinstance(run, Acknowledgements)
        assert (list(run.packet_ids), run.reason) == ([7, 300, 9], reason)


def test_topics_may_differ() -> None:
    decoder = Decoder(version=Version.V5, gathers=True)
    data = b"".join([encode(Publish(topic, b"1" * size), Version.V5) for topic, size in (("a", 1), ("b/c", 200))])
    decoder.feed(data)
    (burst,) = decoder.feed(3 * data)
    assert isinstance(burst, PublishBatch)
    assert list(burst.topics) == ["a", "b/c"] * 3


@pytest.mark.parametrize("number", [0, MANY, MANY + 1, 3 * MANY, 9 * MANY - 2])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_long_run_ends_where_a_packet_is_not_alike(version: Version, qos: int, number: int) -> None:
    sent = [
        publish("a/b", b"%04d" % each, qos, each, retain=False, dup=False, key=False) for each in range(1, 9 * MANY)
    ]
    packets = [encode(each, version) for each in sent]
    for place in range(len(packets[0]) - 4):
        odd = bytearray(packets[number])
        odd[place] ^= 1
        data = b"".join([*packets[:number], odd, *packets[number + 1 :], packets[0][:-1]])
        gathering, plain = Decoder(version=version, gathers=True), Decoder(version=version)
        for decoder in (gathering, plain):
            decoder.feed(packets[0])
        found, expected = gathering.feed(data), plain.feed(data)
        assert rows(found) == rows(expected)
        assert (str(gathering.error), gathering.buffered) == (str(plain.error), plain.buffered)
        assert len(found) < 6


def gathered(version: Version, data: bytes, max_packet_size: int = 1000) -> list[Decoded]:
    """What comes where the topics are known: the same as without gathering."""
    gathering = Decoder(max_packet_size=max_packet_size, version=version, gathers=True)
    plain = Decoder(max_packet_size=max_packet_size, version=version)
    for decoder in (gathering, plain):
        for topic in ("a", "b/c"):
            decoder.feed(encode(Publish(topic, b""), version))
    found, expected = gathering.feed(data), plain.feed(data)
    assert rows(found) == rows(expected)
    assert (str(gathering.error), gathering.buffered) == (str(plain.error), plain.buffered)
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_of_any_length_has_one_topic(version: Version, qos: int) -> None:
    """Its subscribers are looked for once."""
    for count in (2, MANY, MANY + 1, MANY + 2, 3 * MANY + 1, 3 * MANY + 2, 9 * MANY):
        packets = [publish("a", b"1", qos, each, retain=False, dup=False, key=False) for each in range(1, count + 1)]
        found = gathered(version, b"".join([encode(each, version) for each in packets]))
        batches = [each for each in found if isinstance(each, PublishBatch)]
        assert [(list(each.topics), each.count) for each in batches] == [(["a"], count)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_packet_may_be_as_large_as_the_limit(version: Version) -> None:
    packet = encode(Publish("a", b"1" * 200), version)
    (batch,) = gathered(version, 2 * packet, len(packet))
    assert isinstance(batch, PublishBatch)


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("keys", ["-kk", "kk-", "kkj", "kjj", "--kkj-"])
def test_each_message_has_its_own_properties(qos: int, keys: str) -> None:
    packets = [Publish("a", b"1", qos, properties={} if k == "-" else {"correlation_data": k.encode()}) for k in keys]
    for number, packet in enumerate(packets, 1):
        packet.packet_id = number * qos
    gathered(Version.V5, b"".join([encode(each, Version.V5) for each in packets]))


@pytest.mark.parametrize(
    "odd",
    [b"\x30\x85\0\0\1a\0\0", b"\x30\x03\0\1a\0\0", b"\x30\x83\0\0\1a"],
    ids=["long length", "no properties", "cut"],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_row_ends_where_a_packet_is_wrong(version: Version, odd: bytes) -> None:
    gathered(version, 2 * encode(Publish("a", b""), version) + odd)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_follows_a_packet_is_none_of_its_properties(qos: int) -> None:
    packet = Publish("a", b"", qos, properties={"correlation_data": bytes([0x30 | qos << 1])})
    packet.packet_id = 1 if qos else 0
    whole = encode(packet, Version.V5)
    cut = whole[:1] + bytes([whole[1] - 1]) + whole[2:-1]
    for rest in (cut, MANY * 2 * cut):
        data = 3 * whole + rest + whole
        decoder = Decoder(version=Version.V5, gathers=True)
        assert rows(decoder.feed(data)) == rows([packet] * 3)
        assert str(decoder.error) == "the packet ends within its properties"


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_several_topics_end_where_a_packet_has_no_identifier(version: Version) -> None:
    packets = [Publish(topic, b"1", 1) for topic in ("a", "b/c", "a", "b/c")]
    for packet, packet_id in zip(packets, (1, 2, 0xFFFF, 3), strict=True):
        packet.packet_id = packet_id
    data = b"".join([encode(each, version) for each in packets])
    (batch,) = gathered(version, data.replace(b"\xff\xff", b"\0\0"))
    assert isinstance(batch, PublishBatch)
    assert (list(batch.topics), list(batch.packet_ids)) == (["a", "b/c"], [1, 2])


@given(st.sampled_from(VERSIONS), st.lists(publishes, min_size=1, max_size=8), st.booleans())
def test_packets_that_come_alone_are_what_they_would_be_together(
    version: Version, sent: list[Publish], bad: bool
) -> None:
    """A read that looks like the one before is decoded in a shorter way."""
    packets = [wire_of(packet, version) for packet in sent for _ in range(3)]
    if bad:  # the same beginning and length, but a packet identifier of 0
        packets += [publish_with_id(7, version), publish_with_id(8, version), publish_with_id(0, version)] * 2
    alone, together = Decoder(version=version), Decoder(version=version)
    found: list[Decoded] = []
    for packet in packets:
        found += alone.feed(packet)
    assert rows(found) == rows(together.feed(b"".join(packets)))
    assert str(alone.error) == str(together.error)


def publish_with_id(packet_id: int, version: Version) -> bytes:
    return b"\x32\x07\0\1a" + packet_id.to_bytes(2, "big") + (b"\0" if version == Version.V5 else b"x") + b"y"
