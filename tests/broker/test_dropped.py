"""Nothing is dropped without a word: each reason is counted, and the hooks hear of each message, wherever it was."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tests.broker.disk import Disk, Life
from tests.broker.session.test_cursor import until
from tests.conformance import raw
from tests.wire import Wire
from trunkline import nats
from trunkline.broker.metrics import DropReason
from trunkline.broker.overload import Resource
from trunkline.hooks import DROP, Deny, Hooks
from trunkline.mqtt.message import Message
from trunkline.nats.jetstream.replies import WrongLast
from trunkline.streams.config import Discard, StreamConfig


class Stage:
    """A broker with a subscriber to `t`, whose session is stored where anything is, and a publisher."""

    def __init__(self, life: Life, hooks: Hooks, subscriber: Wire, publisher: Wire) -> None:
        self.life = life
        self.hooks = hooks
        self.subscriber = subscriber
        self.publisher = publisher

    async def publish(self, *qos: int, topic: str = "t", **more: Any) -> None:
        for each in qos:
            await self.publisher.publish(topic, b"payload", qos=each, **more)

    async def go(self) -> None:
        await self.subscriber.abort()
        await until(lambda: self.life.node.sessions.get("subscriber").channel is None)  # type: ignore[union-attr]
        await self.life.node.scheduler.drained()

    async def come(self, **terms: Any) -> None:
        self.subscriber = await self.life.wire()
        await self.subscriber.connect("subscriber", **{"clean": False, "properties": raw.session_expiry(1000), **terms})

    def deny(self, denied: str) -> None:
        self.hooks.add("client.check_acl", lambda client, action, *_: Deny() if action == denied else None)


async def no_subscribers(stage: Stage) -> None:
    await stage.publish(0, 1, 2, topic="nobody")


async def not_authorized(stage: Stage) -> None:
    stage.deny("publish")
    await stage.publish(0, 1, 2)


async def hook(stage: Stage) -> None:
    stage.hooks.add("message.publish", lambda client, message: DROP)
    await stage.publish(0, 1, 2)


async def receive_maximum(stage: Stage) -> None:
    """Of what the broker keeps until its PUBREL comes."""
    for packet_id in range(1, 4):
        await stage.publisher.send(raw.publish("t", b"x", qos=2, packet_id=packet_id))
        await stage.publisher.expect_type(raw.PUBREC)


async def unreleased(stage: Stage) -> None:
    await stage.publisher.send(raw.publish("t", b"x", qos=2, packet_id=1))
    await stage.publisher.expect_type(raw.PUBREC)
    await stage.publisher.disconnect()


async def await_rel_timeout(stage: Stage) -> None:
    await stage.publisher.send(raw.publish("t", b"x", qos=2, packet_id=1))
    await stage.publisher.expect_type(raw.PUBREC)


async def payload_too_large(stage: Stage) -> None:
    await stage.publisher.publish("t", bytes(11), qos=1)


async def stream_full(stage: Stage) -> None:
    config = StreamConfig(name="s", filters=("s/#",), max_messages=1, discard=Discard.NEW)
    await stage.life.node.streams.create(config)
    await stage.publish(1, 1, topic="s/1")


async def wrong_last(stage: Stage) -> None:
    await stage.life.node.streams.create(StreamConfig(name="s", filters=("s/#",)))
    host, port = stage.life.node.listeners[0].address[:2]
    async with nats.connect(f"nats://{host}:{port}") as client:
        with pytest.raises(WrongLast):
            await client.jetstream().publish("s.1", b"x", expected_last_sequence=5)


async def rate_exceeded(stage: Stage) -> None:
    await stage.publish(*[1] * 3)


async def read_not_authorized(stage: Stage) -> None:
    stage.deny("receive")
    await stage.publish(0, 1, 2)


async def too_large(stage: Stage) -> None:
    await stage.go()
    await stage.come(properties=raw.session_expiry(1000) + raw.maximum_packet_size(60))
    for qos in range(3):
        await stage.publisher.publish("t", bytes(100), qos=qos)


async def unwritable(stage: Stage) -> None:
    properties: Any = {"user_property": [("nul \0", "x")]}
    for qos in range(3):
        stage.life.node.services.pubsub.publish(Message("t", b"x", qos, False, properties), trio.current_time())


async def qos0_not_stored(stage: Stage) -> None:
    await stage.go()
    await stage.publish(0)


async def queue_full(stage: Stage) -> None:
    await stage.go()
    await stage.publish(0, *[1, 2] * 10)
    await stage.come()


async def slow_consumer(stage: Stage) -> None:
    await stage.publish(*[1] * 60)


async def overloaded(stage: Stage) -> None:
    await stage.go()
    stage.life.node.services.overload.exceeded[Resource.MEMORY] = "a mark"
    await stage.publish(0)


async def no_local(stage: Stage) -> None:
    await stage.publisher.subscribe(("own", raw.options(1, no_local=True)))
    await stage.publish(0, 1, topic="own")


async def session_ended(stage: Stage) -> None:
    await stage.publish(1)
    await stage.go()
    await stage.publish(0, 1, 2)
    await stage.come(clean=True)


async def unsubscribed(stage: Stage) -> None:
    await stage.go()
    await stage.publish(1, 2)
    assert stage.life.node.clients.unsubscribe("subscriber", ["t"])


async def expired(stage: Stage) -> None:
    await stage.go()
    await stage.publish(0, 1, 2, properties=raw.message_expiry(0))
    await stage.come()


async def delivery_hook(stage: Stage) -> None:
    stage.hooks.add("message.deliver", lambda client, message: DROP)
    await stage.publish(0, 1, 2)


async def refused(stage: Stage) -> None:
    for qos, answer in ((1, raw.PUBACK), (2, raw.PUBREC)):
        await stage.publish(qos)
        packet = await stage.subscriber.expect_type(raw.PUBLISH)
        await stage.subscriber.send(raw.ack(answer, packet.packet_id, 0x83))


async def redispatched(stage: Stage) -> None:
    await stage.subscriber.subscribe("$share/g/shared")
    await stage.publish(1, topic="shared")
    await stage.publisher.subscribe("$share/g/shared")
    await stage.go()
    await stage.come(clean=True)


#: What leads to each reason, and the settings that it takes.
WAYS: dict[DropReason, tuple[Callable[[Stage], Awaitable[None]], dict[str, Any]]] = {
    DropReason.NO_SUBSCRIBERS: (no_subscribers, {}),
    DropReason.NOT_AUTHORIZED: (not_authorized, {}),
    DropReason.HOOK: (hook, {}),
    DropReason.RECEIVE_MAXIMUM: (receive_maximum, {"session": {"max_queue_bytes": 1000}}),
    DropReason.UNRELEASED: (unreleased, {}),
    DropReason.AWAIT_REL_TIMEOUT: (await_rel_timeout, {"session": {"await_rel_timeout": 0.01}}),
    DropReason.PAYLOAD_TOO_LARGE: (payload_too_large, {"mqtt": {"max_payload_size": 10}}),
    DropReason.STREAM_FULL: (stream_full, {}),
    DropReason.WRONG_LAST: (wrong_last, {"listeners": ["nats://127.0.0.1:0"]}),
    DropReason.RATE_EXCEEDED: (rate_exceeded, {"rate": {"client_messages": "1/h burst 1", "over": "refuse"}}),
    DropReason.READ_NOT_AUTHORIZED: (read_not_authorized, {}),
    DropReason.TOO_LARGE: (too_large, {}),
    DropReason.UNWRITABLE: (unwritable, {}),
    DropReason.QOS0_NOT_STORED: (qos0_not_stored, {"session": {"store_qos0": False}}),
    DropReason.QUEUE_FULL: (queue_full, {"session": {"max_queue_length": 5}}),
    DropReason.SLOW_CONSUMER: (slow_consumer, {"session": {"max_queue_length": 5, "max_inflight": 1}}),
    DropReason.OVERLOADED: (overloaded, {}),
    DropReason.NO_LOCAL: (no_local, {}),
    DropReason.SESSION_ENDED: (session_ended, {}),
    DropReason.UNSUBSCRIBED: (unsubscribed, {}),
    DropReason.EXPIRED: (expired, {}),
    DropReason.DELIVERY_HOOK: (delivery_hook, {}),
    DropReason.REFUSED: (refused, {}),
    DropReason.REDISPATCHED: (redispatched, {}),
}


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("reason", DropReason)
async def test_hooks_hear_of_what_is_counted(reason: DropReason, stored: bool) -> None:
    if reason is DropReason.UNSUBSCRIBED and not stored:
        return  # in the memory it is sent all the same
    way, more = WAYS[reason]
    heard = Counter[str]()
    hooks = Hooks()
    hooks.add("message.dropped", lambda client, message, word: heard.update([word]))
    store = {} if stored else {"durability": "memory"}
    session = {"backpressure": 0, **more.get("session", {})}
    async with Disk().broker(hooks=hooks, **{**more, "session": session, "store": store}) as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 2))
        publisher, _ = await life.stay("publisher", expiry=0)
        await way(Stage(life, hooks, subscriber, publisher))
        dropped = life.node.metrics.dropped
        await until(lambda: dropped[reason] > 0)
        await life.node.scheduler.drained()
        assert {each.word: count for each, count in dropped.items() if count} == heard
