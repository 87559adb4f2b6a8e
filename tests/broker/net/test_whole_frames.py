import os

import pytest

from tests.broker.net.web_client import Client, frame, opened
from trunkline.broker.net.whole_frames import MAX_SENT


async def test_small_frames_of_one_read_go_on_together() -> None:
    below, _ = opened()
    below.receive(b"".join(frame(bytes([number])) for number in range(200)))
    assert below.got == [bytes(range(200))]


OTHERS = [frame(b"ab"), frame(b"a" * 200), frame(b"", opcode=9), frame(b"a", fin=False) + frame(b"b", opcode=0), b""]


@pytest.mark.parametrize("size", [1, 130, 70_000])
@pytest.mark.parametrize("other", OTHERS, ids=["shorter", "longer", "ping", "fragments", "none"])
async def test_frames_that_are_alike_with_another_in_between(size: int, other: bytes) -> None:
    for place in range(12):
        below, _ = opened()
        payloads = [os.urandom(size) for _ in range(12)]
        data = [frame(payload) for payload in payloads]
        below.receive(b"".join(data[:place]) + other + b"".join(data[place:]))
        expected = {OTHERS[0]: b"ab", OTHERS[1]: b"a" * 200, OTHERS[3]: b"ab"}.get(other, b"")
        assert below.data == b"".join(payloads[:place]) + expected + b"".join(payloads[place:])
        assert below.failed is None


async def test_what_is_sent_in_a_turn_is_one_frame() -> None:
    below, made = opened()
    with below.scheduler.turn:
        made.send(b"abc")
        made.send(b"def")
        assert made.pending == 6
    assert below.writes == [b"\x82\x06abcdef"]
    assert made.pending == 0


@pytest.mark.parametrize("size", [125, 126, 4_096, MAX_SENT, MAX_SENT + 1, 200_000])
async def test_sizes_of_frames(size: int) -> None:
    below, made = opened()
    made.send(b"x" * size)
    below.turn()
    assert len(below.writes) == 1
    assert Client(below).data() == b"x" * size
