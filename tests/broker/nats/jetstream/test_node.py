"""What all clients share: who is woken by a new subscription, and what lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from tests.broker.nats.jetstream.pulled import jetstream_room
from trunkline.streams import Discard, StreamConfig

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_a_subscription_wakes_those_whom_it_concerns(monkeypatch: pytest.MonkeyPatch) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        for name in ("a", "b"):
            await puller.consumer(name, deliver_subject=f"d.{name}")
        woken: list[str] = []
        for pusher in here.jetstream._pushers.values():
            monkeypatch.setattr(pusher, "wake", lambda topic=pusher.topic: woken.append(topic))
        for pattern, expected in (
            (b"d.a", ["d/a"]),
            (b"d.a q", ["d/a"]),
            (b"other", []),
            (b"d.*", ["d/a", "d/b"]),
        ):
            woken.clear()
            await puller.say(b"SUB %s 9" % pattern)
            await puller.nothing()
            assert sorted(woken) == expected
            await puller.say(b"UNSUB 9")
            await puller.nothing()
            assert sorted(woken) == sorted(expected * 2), "and when it ends"


async def test_what_is_pushed_to_a_subject_whose_stream_refuses_it_is_heard() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        full = StreamConfig(name="full", filters=("r/pushed",), max_messages=1, discard=Discard.NEW)
        await here.streams.create(full)
        await here.fill(b"1", b"2", b"3")
        await puller.consumer("p", deliver_subject="r.pushed", ack_policy="none")
        assert [(await puller.got()).payload for _ in range(3)] == [b"1", b"2", b"3"]
        assert here.streams.info("full").messages == 1


async def test_two_listeners_have_one(tmp_path: Path) -> None:
    another = {"url": "nats://127.0.0.1:0", "name": "another"}
    async with jetstream_room(listeners=[another]) as here:
        assert (await (await here.puller()).api("INFO"))["streams"] == 1
        address = here.room.broker.listeners["another"]
        stream = await trio.open_tcp_stream(address.host, address.port)
        await stream.send_all(b"PING\r\n")
        while len(here.room.connections) < 2 or any(each.client is None for each in here.room.connections):
            await trio.lowlevel.checkpoint()
        assert len({id(each.client.standing.jetstream) for each in here.room.connections if each.client}) == 1
        await stream.aclose()


async def test_what_a_client_has_made_is_there_after_a_start(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"store": {"path": str(tmp_path / "store.db"), "durability": "os"}}
    async with jetstream_room(**settings) as here:
        puller = await here.puller()
        config = {"name": "t", "subjects": ["t.>"], "allow_direct": True, "metadata": {"a": "b"}, "storage": "memory"}
        made = await puller.api("STREAM.CREATE.t", config)
        await puller.consumer("p", deliver_subject="r.d")
        consumer = await puller.consumer(max_waiting=7, description="x", max_batch=10, metadata={"c": "d"})
    async with jetstream_room(**settings) as here:
        puller = await here.puller()
        assert (await puller.api("STREAM.INFO.t"))["config"] == made["config"]
        assert (await puller.api("CONSUMER.INFO.s.c"))["config"] == consumer["config"]
        assert "push_bound" in await puller.api("CONSUMER.INFO.s.p")


async def test_a_receiver_that_has_gone_holds_nobody(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.say(b"SUB d 2")
        await puller.consumer(deliver_subject="d")
        (pusher,) = here.jetstream._pushers.values()
        receiver = object()
        here.jetstream.hold("d", receiver)
        here.jetstream.hold("d", receiver)
        assert pusher.is_stalled
        await here.fill(b"1")
        await puller.nothing()
        here.jetstream.release(receiver)
        here.jetstream.release(receiver)
        assert not pusher.is_stalled
        assert not here.jetstream._held
        assert (await puller.got()).payload == b"1"


async def test_nothing_is_left_of_where_a_consumer_pushed_once() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        for number in range(3):
            await puller.consumer(deliver_subject=f"d.{number}")
        assert list(here.jetstream._by_topic) == ["d/2"]
        await puller.api("CONSUMER.DELETE.s.c")
        await trio.testing.wait_all_tasks_blocked()
        assert not here.jetstream._by_topic


async def test_errors_while_it_pushes_are_a_second_apart(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer(deliver_subject="r.d", ack_policy="none")
        (pusher,) = here.jetstream._pushers.values()
        tries: list[float] = []

        def fail(*_: Any) -> None:
            tries.append(trio.current_time())
            raise RuntimeError("broken") if len(tries) < 50 else SystemExit

        monkeypatch.setattr(pusher, "_publish", fail)
        await here.fill(*[b"x"] * 200)
        await trio.sleep(2.5)
        assert [round(each - tries[0]) for each in tries] == [0, 1, 2]


async def test_an_error_while_it_pushes_ends_no_consumer(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer(deliver_subject="r.d")
        (pusher,) = here.jetstream._pushers.values()
        (cursor,) = here.room.node.stream_keeper.registry.get("s").consumers
        errors = [RuntimeError("broken")]
        publish = pusher._publish

        def once(*args: Any) -> None:
            if errors:
                raise errors.pop()
            publish(*args)

        monkeypatch.setattr(pusher, "_publish", once)
        await here.fill(b"1", b"2")
        assert {(await puller.got()).payload for _ in range(2)} == {b"1", b"2"}, "what was taken comes again"
        assert cursor.receivers == 1
