"""Batches that are not complete: what ends them, and what bounds them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.nats.jetstream.pulled import JetStreamRoom, Puller, jetstream_room, settled
from trunkline.broker.metrics import DropReason
from trunkline.broker.nats.jetstream import open_batches
from trunkline.broker.nats.jetstream.open_batches import PATIENCE

if TYPE_CHECKING:
    from trio.testing import MockClock

ATOMIC = {"metadata": {"_nats": '{"allow_atomic": true}'}}


async def put(puller: Puller, sequence: object, commit: str = "", name: str = "x", **headers: str) -> Any:
    """The answer: None for an empty one, or the number of an error."""
    said = {"Nats_Batch_Id": name, "Nats_Batch_Sequence": str(sequence), **headers}
    if commit:
        said["Nats_Batch_Commit"] = commit
    payload = (await puller.ask("s.a", b"x", **said)).payload
    answer = json.loads(payload) if payload else None
    return answer["error"]["err_code"] if answer and "error" in answer else answer


def dropped(here: JetStreamRoom) -> int:
    return here.room.node.metrics.dropped[DropReason.STREAM_FULL]


async def test_a_batch_that_waits_too_long_is_over(autojump_clock: MockClock) -> None:
    async with jetstream_room(stream=ATOMIC) as here:
        puller = await here.puller()
        assert await put(puller, 1) is None
        autojump_clock.jump(PATIENCE - 1)
        assert await put(puller, 2) is None
        autojump_clock.jump(PATIENCE - 1)
        assert await put(puller, 1, name="y") is None
        assert await put(puller, 3) is None, "each message gives it as long again"
        autojump_clock.jump(PATIENCE / 2)
        await settled()
        assert len(here.jetstream.batches) == 2
        autojump_clock.jump(PATIENCE / 2 + 0.1)
        await settled()
        assert len(here.jetstream.batches) == 0, "without being asked"
        assert dropped(here) == 4
        assert await put(puller, 4, "1") == 10176
        assert await put(puller, 1, "1") == {"stream": "s", "seq": 1, "batch": "x", "count": 1}


async def test_it_ends_with_its_connection_and_is_nobody_elses() -> None:
    async with jetstream_room(stream=ATOMIC) as here:
        puller, other = await here.puller(), await here.puller()
        assert await put(puller, 1) is None
        assert await put(other, 2, "1") == 10176
        assert await put(other, 1) is None
        assert len(here.jetstream.batches) == 2
        jetstream = here.jetstream
        await puller.speaker.leave()
        await settled()
        assert len(jetstream.batches) == 1
        assert await put(other, 2, "1") == {"stream": "s", "seq": 2, "batch": "x", "count": 2}
        assert len(jetstream.batches) == 0


async def test_limits_of_a_stream_and_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_batches, "MOST_OF_STREAM", 2)
    async with jetstream_room(stream=ATOMIC) as here:
        puller = await here.puller()
        for name in ("1", "2"):
            assert await put(puller, 1, name=name) is None
        assert await put(puller, 1, name="3") == 10210
        assert await put(puller, 2, "1", name="1")
        assert await put(puller, 1, name="3") is None
        monkeypatch.setattr(open_batches, "MOST_OF_STREAM", 50)
        monkeypatch.setattr(open_batches, "MOST", 2)
        assert await put(puller, 1, name="4") == 10210
        assert await put(puller, 2, name="3") is None, "those that are open go on"


async def test_bytes_of_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with jetstream_room(stream=ATOMIC) as here:
        puller = await here.puller()
        assert await put(puller, 1) is None
        (batch,) = here.jetstream.batches._open.values()
        monkeypatch.setattr(open_batches, "MOST_BYTES", 5 * batch.weight // 2)
        assert await put(puller, 1, name="y") is None
        assert await put(puller, 2, name="y") == 10210
        assert await put(puller, 3, name="y") == 10176, "it is over"
        assert await put(puller, 2) is None, "and gives room"
        assert await put(puller, 3) == 10210
        assert here.jetstream.batches._weight == len(here.jetstream.batches) == 0


async def test_a_message_that_says_no_sequence_is_not_of_the_batch(autojump_clock: MockClock) -> None:
    async with jetstream_room(stream=ATOMIC) as here:
        puller = await here.puller()
        assert await put(puller, 1) is None
        autojump_clock.jump(PATIENCE / 2)
        for bad in ("x", "", "-1", "9" * 20, "\N{SUPERSCRIPT ONE}"):
            assert await put(puller, bad) == 10175
        autojump_clock.jump(PATIENCE / 2 + 0.1)
        await settled()
        assert await put(puller, 2) == 10176, "nor does it give it time"


@pytest.mark.parametrize(("text", "code"), [("2", None), ("3", 10185), ("x", 10185)])
async def test_a_higher_level_of_the_api(text: str, code: int | None) -> None:
    async with jetstream_room(stream=ATOMIC) as here:
        puller = await here.puller()
        assert await put(puller, 1) is None
        assert await put(puller, 2, Nats_Required_Api_Level=text) == code
        assert len(here.jetstream.batches) == (code is None)


async def test_messages_of_a_batch_that_nobody_completes_are_counted() -> None:
    async with jetstream_room(stream=ATOMIC) as here:
        puller = await here.puller()
        for sequence in (1, 2, 3):
            assert await put(puller, sequence) is None
        assert dropped(here) == 0
        assert await put(puller, 7) == 10176
        assert dropped(here) == 4
