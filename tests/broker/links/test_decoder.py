from hypothesis import given
from hypothesis import strategies as st

from tests.broker.links.wires import wire_of
from trunkline.broker.links.decoder import FrameDecoder
from trunkline.broker.links.frames import HEAD, BurstFrame, BurstsStored, LinkBeat

FRAMES = [BurstFrame(1, b"x" * 100), LinkBeat(), BurstsStored(7), BurstFrame(2, b""), BurstFrame(3, b"end")]
WIRE = b"".join(map(wire_of, FRAMES))


@given(st.lists(st.integers(1, 40)))
def test_in_any_pieces(sizes: list[int]) -> None:
    decoder, found, at = FrameDecoder(), [], 0
    for size in [*sizes, len(WIRE)]:
        found += decoder.feed(WIRE[at : at + size])
        at += size
    assert found == FRAMES
    assert decoder.error is None


def test_a_frame_that_is_too_long_is_not_waited_for() -> None:
    decoder = FrameDecoder(limit=100)
    assert decoder.feed(wire_of(BurstFrame(1, b"x" * 82))) == [BurstFrame(1, b"x" * 82)]
    assert decoder.feed(HEAD.pack(101, 4)) == []
    assert str(decoder.error) == "a frame of 101 bytes, at most 100 are allowed"
    assert decoder.feed(wire_of(LinkBeat())) == [], "nothing is looked at behind a mistake"


def test_a_frame_without_a_kind() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(wire_of(LinkBeat()) + HEAD.pack(0, 7)) == [LinkBeat()]
    assert str(decoder.error).startswith("a frame of 0 bytes")


def test_a_mistake_behind_frames_does_not_lose_them() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(wire_of(BurstsStored(1)) + HEAD.pack(1, 99) + wire_of(BurstsStored(2))) == [BurstsStored(1)]
    assert str(decoder.error) == "no frame has the kind 99"


def test_a_long_frame_is_put_together_once() -> None:
    """Not anew for each piece of it."""
    decoder, wire = FrameDecoder(), wire_of(BurstFrame(1, bytes(1 << 20)))
    for at in range(0, len(wire) - 1000, 1000):
        assert decoder.feed(wire[at : at + 1000]) == []
    assert decoder._needed == len(wire)
    assert decoder.feed(wire[len(decoder._held) :]) == [BurstFrame(1, bytes(1 << 20))]
