"""A batch is its single messages, whatever is done with it."""

from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.frames import encode_publish
from trunkline.mqtt.packets import Publish
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.versions import Version

VERSIONS = [Version.V311, Version.V5]


def publish(topic: str, payload: bytes, qos: int = 0, packet_id: int = 0) -> Publish:
    packet = Publish(topic, payload, qos)
    packet.packet_id = packet_id
    return packet


def batch_of(packets: Sequence[Publish], version: Version) -> PublishBatch:
    """The packets as one batch: each topic is made known before."""
    decoder = Decoder(version=version, gathers=True)
    for topic in {packet.topic for packet in packets}:
        decoder.feed(encode(publish(topic, b""), version))
    (batch,) = decoder.feed(b"".join([encode(packet, version) for packet in packets]))
    assert isinstance(batch, PublishBatch)
    return batch


def fields(packets: Sequence[Publish]) -> list[tuple[object, ...]]:
    return [(p.topic, p.payload, p.qos, p.retain, p.dup, p.packet_id, p.wire3, p.wire5) for p in packets]


@st.composite
def packets(draw: st.DrawFn) -> list[Publish]:
    qos = draw(st.integers(0, 2))
    topics = draw(st.lists(st.sampled_from(["a", "b/c", "long/" * 9 + "end"]), min_size=2, max_size=12))
    sizes = st.sampled_from([0, 5, 5, 64, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 2000])
    return [
        publish(topic, draw(st.binary(min_size=1, max_size=1)) * draw(sizes), qos, number if qos else 0)
        for number, topic in enumerate(topics, 300)
    ]


same_length = [publish("t/1", b"%04d" % number, 1, number) for number in range(250, 270)]


@given(packets(), st.sampled_from(VERSIONS))
def test_a_batch_unfolds_to_the_packets_that_came(sent: list[Publish], version: Version) -> None:
    batch = batch_of(sent, version)
    assert batch.count == len(sent)
    plain = Decoder(version=version).feed(b"".join([encode(packet, version) for packet in sent]))
    assert fields(batch.messages) == fields(cast("list[Publish]", plain))
    assert batch.messages is batch.messages


@given(packets(), st.sampled_from(VERSIONS), st.data())
def test_a_part_is_those_messages(sent: list[Publish], version: Version, data: st.DataObject) -> None:
    batch = batch_of(sent, version)
    batch.guid, batch.publisher, batch.username, batch.timestamp = 7, "p", "u", 3.5
    first = data.draw(st.integers(0, len(sent) - 1))
    last = data.draw(st.integers(first + 1, len(sent)))
    part = batch.part(first, last)
    assert fields(part.messages) == fields(batch.messages[first:last])
    assert [m.guid for m in part.messages] == list(range(7 + first, 7 + last))
    assert {(m.publisher, m.username, m.timestamp) for m in part.messages} == {("p", "u", 3.5)}
    assert list(batch.part(first, last).messages) == list(batch.messages[first:last]), "made once, shared by all parts"


@given(packets(), st.sampled_from(VERSIONS), st.data())
def test_a_selection_is_those_messages(sent: list[Publish], version: Version, data: st.DataObject) -> None:
    batch = batch_of(sent, version)
    batch.guid = 7
    numbers = sorted(data.draw(st.sets(st.integers(0, len(sent) - 1), min_size=1)))
    some = batch.select(numbers)
    assert fields(some.messages) == [fields(batch.messages)[number] for number in numbers]
    assert [m.guid for m in some.messages] == [7 + number for number in numbers]
    assert list(batch.select(numbers).messages) == [batch.messages[number] for number in numbers]


@given(packets(), st.sampled_from(VERSIONS), st.sampled_from(VERSIONS), st.integers(0, 2), st.integers(1, 65_000))
def test_its_wire_is_what_each_message_would_be_written_as(
    sent: list[Publish], version: Version, to: Version, qos: int, first_id: int
) -> None:
    batch = batch_of(sent, version)
    if not qos:
        assert batch.wire(to) == b"".join([encode_publish(message, to) for message in sent])
        return
    ids = range(first_id, first_id + len(sent))
    expected = [
        encode_publish(message, to, qos=qos, packet_id=packet_id) for message, packet_id in zip(sent, ids, strict=True)
    ]
    assert b"".join(batch.numbered(to, qos, False, ids)) == b"".join(expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_of_one_length_are_numbered_alike(version: Version) -> None:
    batch = batch_of(same_length, version)
    ids = range(65_500, 65_520)
    expected = [
        encode_publish(message, version, qos=1, packet_id=packet_id)
        for message, packet_id in zip(same_length, ids, strict=True)
    ]
    assert b"".join(batch.numbered(version, 1, False, ids)) == b"".join(expected)
    assert batch.topics == ["t/1"], "one topic stands for all"
