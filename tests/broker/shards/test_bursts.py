"""A burst is what was forwarded."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tests.mqtt.property_values import blocks, decoded
from trunkline.broker.shards.bursts import Forwarded, decode_burst, encode_burst
from trunkline.mqtt.message import Message
from trunkline.mqtt.packet_types import PacketType

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


def test_most_are_for_everybody_who_wants_them_and_nothing_more_is_said() -> None:
    assert Forwarded(Message("t", b"x"))[1:] == ("", (), 0, 0, False, None, None)
