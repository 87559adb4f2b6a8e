"""The plugins for topics, switched on and off while messages flow, and all of them at once with whatever clients
send."""

import random
from typing import Any

import pytest
import trio

from tests.broker.room import room
from tests.conformance import raw

SETTINGS: dict[str, dict[str, Any]] = {
    "topic-rewrite": {
        "rules": [
            {"source": "a/#", "pattern": "^a/(.*)", "target": "b/$1"},
            {"source": "c/+", "pattern": "(x)?", "target": "%c/$1"},
        ]
    },
    "delayed-publish": {"max_delay": 3, "max_messages": 50},
    "auto-subscribe": {"subscriptions": [{"filter": "to/%c"}]},
    "exclusive": {"max_subscriptions": 20},
    "message-filter": {"max_filters": 5},
    "faults": {},
}
MANY = 400


async def test_nothing_is_lost_while_plugins_come_and_go() -> None:
    async with room(plugins=SETTINGS) as here:
        plugins, settings = here.admin.plugins, here.admin.config.plugins
        publisher, subscriber = await here.client("p"), await here.client("s")
        await subscriber.subscribe(("t", 1))
        changed = trio.Event()
        received = 0

        async def change() -> None:
            for _ in range(3):
                for name in SETTINGS:
                    await plugins.disable(name)
                    await plugins.enable(name, settings[name])
                    await plugins.reload(name)
            changed.set()

        async def receive() -> None:
            nonlocal received
            while (packet := await subscriber.expect_type(raw.PUBLISH)).payload != b"end":
                assert packet.payload == b"%d" % received
                await subscriber.acknowledge(packet)
                received += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            nursery.start_soon(receive)
            sent = 0
            while sent < MANY or not changed.is_set():
                await publisher.publish("t", b"%d" % sent, qos=1)
                sent += 1
            await publisher.publish("t", b"end", qos=1)
        assert received == sent
        assert (await here.admin.figures())["messages.dropped"] == 0


WORDS = (
    *("a", "c", "t", "b", "", "+", "#", "$share", "g", "$exclusive", "$delayed", "$SYS", "%c", "$1", "ü"),
    *("0", "2", "9" * 10, "t?v>1", "x?", "?v=1&w!=2", "?v>", "x" * 300),
)
PROPERTIES = (
    *((("v", "1"),), (("v", "2"), ("w", "3")), (("fault:requestid", "1"), ("fault:rejectpublish", "151"))),
    *((("fault:rejectsubscribe", "128"),), (("fault:disconnect", "x"),), (("fault:delay", "1"),)),
)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_clients_send_no_hook_crashes(seed: int) -> None:
    dice = random.Random(seed)

    def topic() -> str:
        return "/".join(dice.choices(WORDS, k=dice.randint(1, 4)))

    def packet(version: int) -> bytes:
        properties = b""
        if version == 5 and dice.random() < 0.3:
            properties = b"".join(raw.user_property(*pair) for pair in dice.choice(PROPERTIES))
        kind = dice.randrange(4)
        if kind == 0:
            return raw.subscribe(1, (topic(), dice.randrange(3)), properties=properties, version=version)
        if kind == 1:
            return raw.unsubscribe(1, topic(), properties=properties, version=version)
        qos = dice.randrange(2)
        return raw.publish(topic(), b"x", qos=qos, packet_id=9 if qos else None, properties=properties, version=version)

    async with room(plugins=SETTINGS) as here:
        for number in range(150):
            version = dice.choice((4, 5))
            client = here.wire(version)
            await client.send(
                raw.connect(dice.choice(("one", "two", "$1", "a+b")), version=version, clean=number % 3 == 0)
            )
            await client.expect_type(raw.CONNACK)
            await client.send(*[packet(version) for _ in range(6)], raw.disconnect())
            await client.rest()
        assert [(entry.name, entry.crashes) for entry in here.broker.hooks.listing() if entry.crashes] == []
        assert {row.name: row.status for row in here.admin.plugins.rows() if row.name in SETTINGS} == dict.fromkeys(
            SETTINGS, "running"
        )
        figures = dict(here.admin.plugins.figures())
        assert figures["plugins.delayed-publish.held"] <= 50
        assert figures["plugins.exclusive.held"] <= 20
        assert all(
            figures[f"plugins.{name}.refused"] for name in ("topic-rewrite", "delayed-publish", "message-filter")
        )
