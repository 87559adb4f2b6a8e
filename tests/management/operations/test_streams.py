"""Streams and their consumers, by an operator."""

from dataclasses import replace

import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.management.asking import all_rows, ask, refused
from trunkline.management.operations.registry import BadRequest, NotFound, Refused
from trunkline.streams import Republication, StreamConfig, StreamOrigin, TopicChange


async def test_a_stream_is_created_looked_at_changed_and_deleted() -> None:
    async with room() as here:
        created = await ask(here, "streams.create", name="orders", filters=["orders/#"], max_age=60.0)
        assert (created["messages"], created["config"]["duplicate_window"]) == (0, 60.0)
        await ask(here, "streams.create", name="a", filters=["a"], retention="workqueue", deny_purge=True)
        for number in range(3):
            here.admin.messages.publish(f"orders/{number}", b"%d" % number, qos=1)
        for limit in (1, 2, 3):
            rows = await all_rows(here, "streams.list", limit=limit)
            assert [(row.name, row.messages, row.retention) for row in rows] == [
                ("a", 0, "workqueue"),
                ("orders", 3, "limits"),
            ]
        about = {"owner": "sales"}
        changed = await ask(here, "streams.edit", name="orders", max_messages=2, allow_rollup=True, metadata=about)
        assert changed["config"]["max_messages"] == 2
        assert (changed["config"]["allow_rollup"], changed["config"]["metadata"]) == (True, about)
        assert changed["config"]["max_age"] == 60.0
        with trio.fail_after(120):  # what is above the limit goes in a task
            while (shown := await ask(here, "streams.info", name="orders"))["first_sequence"] < 2:  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.01)
        assert (shown["first_sequence"], shown["last_sequence"], shown["topics"]) == (2, 3, 2)
        assert await ask(here, "streams.purge", name="orders", filter="orders/1") == {"purged": 1}
        assert await ask(here, "streams.delete", name="orders") == {"deleted": "orders", "messages": 1}
        assert "no stream 'orders'" in await refused(here, NotFound, "streams.info", name="orders")


async def test_what_clients_of_nats_have_said_stays() -> None:
    async with room() as here:
        mirror = StreamOrigin("o", changes=(TopicChange("a/+", "b/$1"),))
        config = StreamConfig(name="m", filters=(), mirror=mirror, republish=Republication("b/+", "c/$1"))
        await here.admin.streams.create(config)
        changed = await ask(here, "streams.edit", name="m", max_messages=2, compressed=True)
        assert changed["config"]["mirror"]["stream"] == "o"
        assert here.admin.streams.info("m").config == replace(config, max_messages=2, compressed=True)
        assert "cannot have filters" in await refused(here, BadRequest, "streams.edit", name="m", filters=["a"])


async def test_what_cannot_be_done() -> None:
    async with room() as here:
        await ask(here, "streams.create", name="a", filters=["a"], deny_purge=True, deny_delete=True)
        here.admin.messages.publish("a", b"1")
        cases = [
            (BadRequest, "streams.create", {"name": "a/b", "filters": ["x"]}, "not a name"),
            (BadRequest, "streams.create", {"name": "b", "filters": []}, "no filters"),
            (Refused, "streams.create", {"name": "b", "filters": ["a"]}, "overlap"),
            (Refused, "streams.purge", {"name": "a"}, "cannot be purged"),
            (Refused, "streams.delete-message", {"name": "a", "sequence": 1}, "cannot be deleted"),
            (NotFound, "streams.get", {"name": "a", "sequence": 7}, "no message 7"),
            (BadRequest, "streams.get", {"name": "a", "last": "a", "sequence": 7}, "alone"),
            (BadRequest, "streams.purge", {"name": "a", "filter": "#/a"}, "not alone"),
            (BadRequest, "streams.edit", {"name": "a", "deny_purge": False}, "cannot be taken back"),
            (NotFound, "streams.consumers.info", {"stream": "a", "consumer": "c"}, "no consumer 'c'"),
        ]
        for kind, operation, arguments, text in cases:
            assert text in await refused(here, kind, operation, **arguments)


async def test_messages() -> None:
    async with room() as here:
        await ask(here, "streams.create", name="orders", filters=["orders/#"])
        client = await here.client("press")
        for number in range(1, 4):
            await client.publish(f"orders/{number % 2}", b"%d" % number, qos=1)
        first = await ask(here, "streams.get", name="orders")
        assert (first.sequence, first.topic, first.payload, first.publisher, first.qos) == (
            1,
            "orders/1",
            b"1",
            "press",
            1,
        )
        for arguments, sequence in (
            ({"sequence": 2}, 2),
            ({"last": "orders/1"}, 3),
            ({"next": "orders/1", "sequence": 2}, 3),
            ({"next": "orders/0"}, 2),
        ):
            assert (await ask(here, "streams.get", name="orders", **arguments)).sequence == sequence
        assert await ask(here, "streams.delete-message", name="orders", sequence=1) == {"deleted": 1}
        assert (await ask(here, "streams.get", name="orders")).sequence == 2


async def test_consumers(autojump_clock: MockClock) -> None:
    async with room() as here:
        await ask(here, "streams.create", name="orders", filters=["orders/#"])
        here.admin.messages.publish("orders/1", b"")
        created = await ask(
            here, "streams.consumers.create", stream="orders", consumer="billing", filters=["orders/+"], ack_wait=5.0
        )
        assert (created["pending"], created["config"]["durable"]) == (1, True)
        await ask(here, "streams.consumers.create", stream="orders", consumer="audit", ack_policy="none")
        assert len(await here.admin.streams.fetch("orders", "billing")) == 1
        rows = await all_rows(here, "streams.consumers.list", stream="orders", limit=1)
        assert [(row.name, row.delivered, row.ack_pending, row.pending) for row in rows] == [
            ("audit", 0, 0, 1),
            ("billing", 1, 1, 0),
        ]
        paused = await ask(here, "streams.consumers.pause", stream="orders", consumer="audit", seconds=60.0)
        assert paused["paused"]
        resumed = await ask(here, "streams.consumers.pause", stream="orders", consumer="audit", seconds=0.0)
        assert not resumed["paused"]
        shown = await ask(here, "streams.consumers.info", stream="orders", consumer="billing")
        assert (shown["delivered"], shown["ack_floor"]) == ({"consumer": 1, "stream": 1}, {"consumer": 0, "stream": 0})
        assert await ask(here, "streams.consumers.delete", stream="orders", consumer="audit") == {"deleted": "audit"}
