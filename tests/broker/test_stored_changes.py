"""A turn in which only messages came and went leaves the rest of a session as it is stored. Whatever else it changes is
in the commit that the client, or its publisher, waits for."""

from collections.abc import Awaitable, Callable

import pytest

from tests.broker.disk import Disk, Life
from tests.broker.node.test_storing import queued
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.backlogs.rows import ENTRIES
from trunkline.hooks import ClientInfo, Hooks
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import SubscriptionRequest


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is stored that nobody waits for."""
    monkeypatch.setattr("trunkline.broker.committer.DELAY", 1e9)


async def busy(life: Life) -> tuple[Wire, Wire]:
    """A subscriber that takes one message at a time, and its publisher: what each does is acknowledged when it is
    stored."""
    subscriber = await life.wire()
    properties = raw.session_expiry(1000) + raw.receive_maximum(1)
    await subscriber.connect("subscriber", clean=False, properties=properties)
    await subscriber.subscribe(("t", 1))
    publisher, _ = await life.stay("publisher")
    return subscriber, publisher


async def test_what_has_no_room_in_the_window() -> None:
    disk = Disk()
    async with disk.broker() as life:
        _, publisher = await busy(life)
        await publisher.publish("t", b"sent", qos=1)
        await publisher.publish("t", b"waits", qos=1)
    async with disk.broker() as life:
        assert await queued(life) == [("t", b"sent"), ("t", b"waits")]


async def test_what_has_left_the_queue() -> None:
    disk = Disk()
    async with disk.broker() as life:
        subscriber, publisher = await busy(life)
        await publisher.publish("t", b"1", qos=1)
        await publisher.publish("t", b"2", qos=1)
        await subscriber.take_publish("t", b"1", qos=1)
        await subscriber.take_publish("t", b"2", qos=1)
        await subscriber.send(raw.PINGREQ)
        await subscriber.receive()  # PINGRESP: the acknowledgement is handled
        await publisher.subscribe("of others")  # its SUBACK waits for a commit
        assert not disk.engine.count(ENTRIES)
    async with disk.broker() as life:
        assert await queued(life) == []


async def test_a_subscription_that_is_not_of_the_clients_asking() -> None:
    disk = Disk()
    async with disk.broker() as life:
        _, publisher = await busy(life)
        life.node.clients.subscribe("subscriber", [SubscriptionRequest("given", 1, False, False, 0)])
        await publisher.publish("given", b"first", qos=1)
    async with disk.broker() as life:
        session = life.node.sessions.get("subscriber")
        assert session is not None
        assert "given" in session.session.subscriptions


async def publish(subscriber: Wire, publisher: Wire) -> None:
    await publisher.publish("t", qos=1)


async def acknowledge(subscriber: Wire, publisher: Wire) -> None:
    await publisher.publish("t", qos=1)
    await subscriber.take_publish("t", qos=1)
    await subscriber.send(raw.PINGREQ)
    await subscriber.receive()  # PINGRESP: the acknowledgement is handled
    await publisher.subscribe("of others")


@pytest.mark.parametrize(
    ("point", "client", "act"),
    [
        ("message.publish", "publisher", publish),
        ("message.deliver", "subscriber", publish),
        ("message.acked", "subscriber", acknowledge),
    ],
)
async def test_attributes_that_a_hook_sets(
    point: str, client: str, act: Callable[[Wire, Wire], Awaitable[None]]
) -> None:
    def mark(client: ClientInfo, message: Message, *_: object) -> None:
        client.attributes["seen"] = message.topic

    hooks, disk = Hooks(), Disk()
    hooks.add(point, mark)
    async with disk.broker(hooks=hooks) as life:
        await act(*await busy(life))
    async with disk.broker() as life:
        session = life.node.sessions.get(client)
        assert session is not None
        assert session.client.attributes == {"seen": "t"}
