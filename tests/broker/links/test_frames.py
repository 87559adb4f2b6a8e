from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.links.wires import wire_of
from trunkline.broker.links.decoder import FrameDecoder
from trunkline.broker.links.frames import (
    FORMAT,
    HEAD,
    BadFrame,
    BurstFrame,
    BurstsStored,
    FrameKind,
    HoldPublisher,
    LinkBeat,
    LinkCredit,
    LinkHello,
    LinkPlace,
    LinkRoute,
    ReleasePublisher,
    RouteChanges,
    RoutesUsed,
    Said,
    ShardAnswer,
    decode,
)
from trunkline.mqtt.packing import pack

NUMBERS = st.integers(0, 2**64 - 1)
ROUTES = st.builds(LinkRoute, st.integers(0, 2), st.booleans(), st.integers(0, 9), st.integers(0, 9))
PLAIN = st.none() | st.integers(-(2**63), 2**63) | st.dictionaries(st.text(), st.lists(st.text() | st.binary()))
FRAMES = st.one_of(
    st.builds(LinkHello, NUMBERS, NUMBERS, NUMBERS, st.builds(LinkPlace, NUMBERS, NUMBERS, NUMBERS)),
    st.builds(RouteChanges, NUMBERS, st.booleans(), st.booleans(), st.dictionaries(st.text(), st.none() | ROUTES)),
    st.builds(RoutesUsed, NUMBERS),
    st.builds(BurstFrame, NUMBERS, st.binary(), NUMBERS, st.booleans()),
    st.builds(BurstsStored, NUMBERS),
    st.builds(LinkCredit, NUMBERS),
    st.builds(LinkBeat),
    st.builds(HoldPublisher, st.text(), NUMBERS, st.booleans()),
    st.builds(ReleasePublisher, st.text(), NUMBERS, st.floats(0, 100)),
    st.builds(Said, st.text(), NUMBERS, PLAIN),
    st.builds(ShardAnswer, NUMBERS, PLAIN),
)


@given(FRAMES)
def test_what_is_written_is_read(frame: object) -> None:
    assert FrameDecoder().feed(wire_of(frame)) == [frame]  # type: ignore[arg-type]


def test_every_kind_is_read() -> None:
    for kind in set(FrameKind) - {FrameKind.BEAT}:
        with pytest.raises(BadFrame, match=f"no {kind.name}"):
            decode(kind, b"")
    assert decode(FrameKind.BEAT, b"") == LinkBeat()


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (0, b"", "no frame has the kind 0"),
        (99, b"", "no frame has the kind 99"),
        (FrameKind.HELLO, pack((FORMAT + 1, 1, 1, 1, (0, 0, 0))), "speaks the format 2, and this one 1"),
        (FrameKind.HELLO, pack((FORMAT, 1, -1, 1, (0, 0, 0))), "no number: -1"),
        (FrameKind.HELLO, pack((FORMAT, True, 1, 1, (0, 0, 0))), "no number: True"),
        (FrameKind.HELLO, pack((FORMAT, 1, 1, 1, (0, 0))), "no HELLO"),
        (FrameKind.HELLO, b"\xc1", "no HELLO"),
        (FrameKind.ROUTES, pack((1, True, True, [("a", (3, False, 0, 0, False))])), "no QoS: 3"),
        (FrameKind.ROUTES, pack((1, True, True, [(1, None)])), "no text: 1"),
        (FrameKind.ROUTES, pack((1, True, True, [("a", (0, False, -1, 0, False))])), "no number: -1"),
        (FrameKind.ROUTES, pack((1, True, True, 5)), "no ROUTES"),
        (FrameKind.ROUTED, bytes(7), "no ROUTED"),
        (FrameKind.ACK, bytes(9), "no ACK"),
        (FrameKind.CREDIT, b"", "no CREDIT"),
        (FrameKind.PUBLISH, bytes(7), "no PUBLISH"),
        (FrameKind.BEAT, b"x", "a BEAT says nothing"),
        (FrameKind.SAID, pack((1, 0, None)), "no text: 1"),
        (FrameKind.SAID, pack(("a", -1, None)), "no number: -1"),
        (FrameKind.ANSWERED, pack((None, 1)), "no number: None"),
    ],
)
def test_what_is_none(kind: int, body: bytes, text: str) -> None:
    with pytest.raises(BadFrame, match=text):
        decode(kind, body)
    decoder = FrameDecoder()
    assert decoder.feed(HEAD.pack(len(body) + 1, kind) + body) == []
    assert decoder.error is not None


@given(st.integers(0, 12), st.binary(max_size=60))
def test_any_bytes_are_a_frame_or_a_mistake(kind: int, body: bytes) -> None:
    with suppress(BadFrame):
        assert wire_of(decode(kind, body))
