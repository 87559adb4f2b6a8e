"""From one message to all who want it."""

from typing import Any

import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from trunkline.actors import system
from trunkline.broker.alarms import Alarms
from trunkline.broker.metrics import Metrics
from trunkline.broker.pubsub import Grant, MakeRoutes, PubSub, RemoveRoutes, Subscribed, Subscriber, Unsubscribed
from trunkline.broker.settings import RetainedSettings
from trunkline.hooks import Hooks
from trunkline.mqtt.burst import Burst
from trunkline.mqtt.message import Message
from trunkline.router import Options, RetainedStore, Router, Target


class Member:
    """A subscriber that keeps its mail."""

    def __init__(self, client_id: str) -> None:
        self.mail: list[Any] = []
        self.subscriber = Subscriber(client_id, self.mail.append)
        self.subscriber.online = True

    @property
    def messages(self) -> list[Message]:
        return [item[0] for item in self.mail if isinstance(item, tuple)]


def pubsub(**retained: Any) -> PubSub:
    metrics = Metrics()
    store = RetainedStore(max_messages=retained.get("max_messages", 0))
    return PubSub(Router(), store, metrics, Alarms(Hooks(), lambda: 0.0), Hooks(), RetainedSettings(**retained))


async def subscribe(actors: Any, hub: PubSub, member: Member, *filters: str, **options: Any) -> list[Grant]:
    hub.ref.cast(MakeRoutes(member.subscriber, [(filter, Options(**options)) for filter in filters], "context"))
    actors.scheduler.step()
    answer = member.mail.pop()
    assert isinstance(answer, Subscribed)
    assert answer.context == "context"
    return answer.grants


async def test_routes_are_made_and_removed_by_mail() -> None:
    async with system() as actors:
        hub, member = pubsub(), Member("m")
        actors.start(hub)
        message = Message("t", b"x", guid=7)
        assert hub.publish(message, 0.0) == 0
        grants = await subscribe(actors, hub, member, "t", "u", qos=1)
        assert [(grant.filter, grant.fresh, grant.since) for grant in grants] == [("t", True, 0), ("u", True, 0)]
        hub.publish(Message("kept", b"x", retain=True), 0.0)
        assert [grant.since for grant in await subscribe(actors, hub, member, "v")] == [1]
        assert [grant.fresh for grant in await subscribe(actors, hub, member, "t", qos=2)] == [False]
        assert hub.publish(message, 0.0) == 1
        assert member.messages == [message]
        hub.ref.cast(RemoveRoutes(member.subscriber, ["t", "unknown"], None))
        actors.scheduler.step()
        answer = member.mail.pop()
        assert isinstance(answer, Unsubscribed)
        assert answer.existed == [True, False]
        assert hub.publish(message, 0.0) == 0


class Back:
    """The way back to a publisher."""

    def __init__(self) -> None:
        self.delivered: list[Message] = []
        self.own: list[Message] = []

    def deliver(self, message: Message, target: Target[Subscriber]) -> None:
        self.delivered.append(message)

    def deliver_burst(self, burst: Burst, target: Target[Subscriber]) -> None:
        self.delivered += burst.messages

    def deliver_own(self, message: Message, target: Target[Subscriber]) -> None:
        self.own.append(message)


async def test_the_publishers_own_copy_comes_at_once_and_not_by_mail() -> None:
    async with system() as actors:
        hub, own, other = pubsub(), Member("own"), Member("other")
        actors.start(hub)
        await subscribe(actors, hub, own, "t")
        await subscribe(actors, hub, other, "t")
        back = Back()
        message = Message("t", b"x", publisher="own")
        assert hub.publish(message, 0.0, own.subscriber, back) == 2
        assert (own.messages, back.delivered, other.messages) == ([], [message], [message])
        await subscribe(actors, hub, own, "t", no_local=True)
        assert hub.publish(message, 0.0, own.subscriber, back) == 2
        # the session sees what is left of it for its own messages, and tells of what it leaves out
        assert (own.messages, back.delivered, back.own) == ([], [message], [message])


async def test_a_group_gets_one_copy() -> None:
    async with system() as actors:
        hub, members = pubsub(), [Member("one"), Member("two")]
        actors.start(hub)
        for member in members:
            await subscribe(actors, hub, member, "$share/g/t")
        for _ in range(4):
            assert hub.publish(Message("t", b"x"), 0.0) == 1
        assert [len(member.messages) for member in members] == [2, 2]
        members[0].subscriber.online = False
        for _ in range(4):
            hub.publish(Message("t", b"x"), 0.0)
        assert [len(member.messages) for member in members] == [2, 6]


async def test_retained_messages_are_kept_as_configured() -> None:
    async with system() as actors:
        hub, off = pubsub(max_messages=1), pubsub(enabled=False)
        for each in (hub, off):
            actors.start(each)
            each.publish(Message("a", b"1", retain=True), 0.0)
            each.publish(Message("b", b"2", retain=True), 0.0)
        assert [each.message.topic for each in hub.retained.match("#", 0.0) if each] == ["a"]
        assert len(off.retained) == 0


async def test_what_has_expired_is_swept_without_being_asked(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a")
        for seconds in (5, 50):
            await client.publish(f"t/{seconds}", b"x", qos=1, retain=True, properties=raw.message_expiry(seconds))
        assert len(here.node.retained) == 2
        await trio.sleep(6)
        assert len(here.node.retained) == 1
        await trio.sleep(50)
        assert len(here.node.retained) == 0


async def test_the_routes_outlive_their_writer() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe(("t", 0))
        services = here.node._services  # pyright: ignore[reportPrivateUsage]
        first = services.pubsub
        first.ref.cast("no such message")  # type: ignore[arg-type]
        while services.pubsub is first or not hasattr(services.pubsub, "ref"):
            await trio.lowlevel.checkpoint()
        await client.subscribe(("u", 0))
        for topic in ("t", "u"):
            await client.send(raw.publish(topic, b"x"))
            await client.expect_publish(topic, b"x")


async def test_what_was_retained_is_sent_after_a_crash_of_their_writer() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.publish("kept", b"x", qos=1, retain=True)
        first = here.node.services.pubsub
        first.ref.cast("no such message")  # type: ignore[arg-type]
        while here.node.services.pubsub is first or not hasattr(here.node.services.pubsub, "ref"):
            await trio.lowlevel.checkpoint()
        await client.subscribe(("kept", 0))
        await client.expect_publish("kept", b"x")


async def test_another_life_of_the_node_goes_on_with_its_messages(autojump_clock: MockClock) -> None:
    async with room() as here, room() as there:
        client = await here.client("a")
        for seconds in (5, 50):
            await client.publish(f"t/{seconds}", b"x", qos=1, retain=True, properties=raw.message_expiry(seconds))
        now = trio.current_time()
        hub = there.node.services.pubsub
        hub.take_over(list(here.node.retained.export(now)), now)
        heir = await there.client("b")
        await heir.subscribe(("t/5", 0))
        await heir.expect_publish("t/5", b"x")
        await trio.sleep(6)
        assert [each.message.topic for each in hub.retained.match("#", trio.current_time()) if each] == ["t/50"]
        assert len(hub.retained) == 1, "it is swept"
