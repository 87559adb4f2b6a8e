"""A burst is what was forwarded."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mqtt.property_values import blocks, decoded
from trunkline.broker.shards.bursts import Forwarded, decode_burst, encode_burst, pieces
from trunkline.broker.shards.versions import STEP
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.message import Message
from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.packets import Publish
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.versions import Version

FORWARDED = st.builds(
    Forwarded,
    st.builds(
        Message,
        st.text(min_size=1, max_size=5),
        st.binary(max_size=9),
        st.integers(0, 2),
        st.booleans(),
        publisher=st.text(max_size=4),
        username=st.none() | st.text(max_size=4),
        guid=st.integers(0, 2**128 - 1),
        timestamp=st.floats(0, 1e10),
        properties=blocks(PacketType.PUBLISH, "topic_alias").map(lambda block: decoded(block, PacketType.PUBLISH)),
        expires_at=st.just(inf) | st.floats(0, 1e9).map(round),
    ),
    st.text(max_size=5),
    st.lists(st.integers(0, 255), max_size=3).map(tuple),
    st.integers(0, 2**60),
    st.integers(0, 2**60),
    st.booleans(),
    st.none() | st.lists(st.text(max_size=5), max_size=3),
)


def plain(forwarded: Forwarded) -> tuple[object, ...]:
    publication, *about = forwarded
    assert isinstance(publication, Message)
    return (
        *[getattr(publication, name) for name in ("topic", "payload", "qos", "retain", "properties", "publisher")],
        *about,
    )


@given(st.lists(FORWARDED, max_size=5), st.integers(0, 10**9))
def test_it_comes_as_it_was(some: list[Forwarded], epoch: int) -> None:
    found = decode_burst(encode_burst(some, epoch), 0.0)
    assert [plain(each) for each in found] == [plain(each) for each in some]
    for each, sent in zip(found, some, strict=True):
        assert each.publication.expires_at == sent.publication.expires_at + epoch
        assert each.publication.guid == sent.publication.guid
        assert each.publication.timestamp == sent.publication.timestamp


@pytest.mark.parametrize("version", [0, 7 * STEP + 2])
@pytest.mark.parametrize("count", [2, 1000, 4001])
def test_many_messages_go_in_pieces_of_a_size(count: int, version: int) -> None:
    packets = [Publish("t", b"%d" % number, 1) for number in range(count)]
    for number, packet in enumerate(packets):
        packet.packet_id = number + 1
    decoder = Decoder(version=Version.V5, gathers=True)
    decoder.feed(encode(packets[0], Version.V5))  # it knows the topic then
    (batch,) = decoder.feed(b"".join([encode(packet, Version.V5) for packet in packets]))
    assert isinstance(batch, PublishBatch)
    found = pieces(Forwarded(batch, "$share/g/t", (1,), version), size := 1 << 19, STEP)
    assert [message.payload for each in found for message in each.publication.messages] == [
        packet.payload for packet in packets
    ]
    first = 0
    for each in found:
        assert each.publication.weight < 1.01 * size
        assert each[1:4] == ("$share/g/t", (1,), version and version + first * STEP)
        first += each.publication.count
    assert len(found) == -(-batch.weight // size)


def test_one_large_message_is_a_piece() -> None:
    forwarded = Forwarded(Message("t", bytes(1000)))
    assert list(pieces(forwarded, 100, STEP)) == [forwarded]


def test_most_are_for_everybody_who_wants_them_and_nothing_more_is_said() -> None:
    assert Forwarded(Message("t", b"x"))[1:] == ("", (), 0, 0, False, None, None)
