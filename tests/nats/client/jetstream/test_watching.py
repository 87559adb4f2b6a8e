"""What a watch does with a server that shows what real ones seldom do; the rest is in those of its users."""

import json
from typing import Any

import pytest

from tests.nats.client.jetstream.scripted_api import Answer, Api, scripted
from tests.nats.client.scripted import Told
from trunkline.nats.client.events import ConsumerRenewed
from trunkline.nats.client.jetstream import JetStream, KeyValue
from trunkline.nats.jetstream.buckets import KeyValueConfig

_MISSING = {"error": {"code": 404, "err_code": 10014, "description": "consumer not found"}}


class Bucket:
    """What the server has: consumers are created in turn, each of which begins with one of these."""

    def __init__(self, *begins: tuple[int, list[tuple[int, str, int]]]) -> None:
        """Each is how much a new consumer says to be pending, and what it delivers: a sequence of its own, a key, and
        how much is pending behind it."""
        self._begins = list(begins)
        self.configs: list[dict[str, Any]] = []
        #: What it says later: pending, and delivered.
        self.later: list[tuple[int, int] | None] = []

    async def answer(self, api: Api, subject: str, payload: bytes) -> Answer:
        what = subject.removeprefix("$JS.API.CONSUMER.")
        if what.startswith("CREATE."):
            config = json.loads(payload)["config"]
            self.configs.append(config)
            pending, messages = self._begins.pop(0)
            name = f"c{len(self.configs)}"
            for number, (sequence, key, left) in enumerate(messages):
                at = config.get("opt_start_seq", 1) + number
                ack = f"$JS.ACK.KV_b.{name}.1.{at}.{sequence}.1700000000000000000.{left}"
                await api.deliver(config["deliver_subject"], f"$KV.b.{key}", b"x", ack)
            return self._info(name, pending, len(messages))
        if what.startswith("INFO."):
            found = self.later.pop(0)
            return _MISSING if found is None else self._info(what.rpartition(".")[2], *found)
        return {"success": True}

    def _info(self, name: str, pending: int, delivered: int) -> dict[str, Any]:
        return {
            "stream_name": "KV_b",
            "name": name,
            "config": self.configs[-1],
            "num_pending": pending,
            "delivered": {"consumer_seq": delivered, "stream_seq": delivered},
            "ack_floor": {},
        }


def key_value(js: JetStream) -> KeyValue:
    return KeyValue(js, KeyValueConfig(bucket="b").stream())


async def initial(js: JetStream) -> list[str]:
    async with key_value(js).watch() as watch:
        found = [entry.key async for entry in watch.initial()]
        assert watch.is_current
        return found


async def test_the_last_one_says_so() -> None:
    bucket = Bucket((0, [(1, "a", 1), (2, "b", 0), (3, "later", 0)]))
    async with scripted(bucket.answer) as (js, _):
        assert await initial(js) == ["a", "b"]


async def test_there_is_nothing() -> None:
    async with scripted(Bucket((0, [])).answer) as (js, _):
        assert await initial(js) == []


@pytest.mark.parametrize("messages", [[], [(1, "a", 2)]])
async def test_what_was_there_is_removed_before_it_comes(messages: list[tuple[int, str, int]]) -> None:
    bucket = Bucket((3, messages))
    bucket.later = [(2, len(messages)), (0, len(messages) + 1), None, (0, len(messages))]
    async with scripted(bucket.answer, seconds=0.1) as (js, _):
        assert await initial(js) == [key for _, key, _ in messages]
    assert bucket.later == []


async def test_a_gap() -> None:
    told = Told()
    bucket = Bucket((0, [(1, "a", 3), (2, "b", 2), (4, "d", 0)]), (0, [(1, "c", 1), (2, "d", 0)]))
    async with scripted(bucket.answer, on_event=told) as (js, _):
        assert await initial(js) == ["a", "b", "c", "d"]
    assert [type(event) for event in told.events] == [ConsumerRenewed]
    first, second = bucket.configs
    assert (first["deliver_policy"], first["filter_subject"]) == ("last_per_subject", "$KV.b.>")
    assert (second["deliver_policy"], second["opt_start_seq"]) == ("by_start_sequence", 3)


async def test_a_gap_behind_which_there_is_nothing_any_more() -> None:
    bucket = Bucket((0, [(1, "a", 3), (3, "c", 1)]), (0, []))
    bucket.later = [(0, 0)]
    async with scripted(bucket.answer, seconds=0.1, on_event=Told()) as (js, _):
        assert await initial(js) == ["a"]


async def test_a_watch_that_was_stopped_ends() -> None:
    bucket = Bucket((5, [(1, "a", 1)]))
    async with scripted(bucket.answer) as (js, _), key_value(js).watch() as watch:
        assert (await watch.receive()).key == "a"
        watch.stop()
        watch.stop()
        assert [entry async for entry in watch] == []
