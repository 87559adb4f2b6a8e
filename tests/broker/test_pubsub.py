"""From one message to all who want it."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from trunkline.actors import system
from trunkline.broker.alarms import Alarms
from trunkline.broker.metrics import Metrics
from trunkline.broker.pubsub import PubSub
from trunkline.broker.routes import Grant, RouteWriter, Subscriber
from trunkline.broker.stored_retained import retained_to_bytes
from trunkline.config.config import Config
from trunkline.hooks import Hooks
from trunkline.mqtt.message import Message
from trunkline.mqtt.publication import Publication
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
    return PubSub(
        Router(), store, metrics, Alarms(Hooks(), lambda: 0.0), Hooks(), Config.model_validate({"retained": retained})
    )


async def subscribe(actors: Any, hub: PubSub, member: Member, *filters: str, **options: Any) -> list[Grant]:
    answers: list[list[Any]] = []
    hub.make_routes(member.subscriber, [(filter, Options(**options)) for filter in filters], answers.append)
    actors.scheduler.step()
    (grants,) = answers
    return grants


async def test_routes_are_made_and_removed_by_mail() -> None:
    async with system() as actors:
        hub, member = pubsub(), Member("m")
        actors.start(hub.new_writer())
        message = Message("t", b"x", guid=7)
        assert hub.publish(message, 0.0) == 0
        grants = await subscribe(actors, hub, member, "t", "u", qos=1)
        assert [(grant.filter, grant.fresh, grant.since) for grant in grants] == [("t", True, 0), ("u", True, 0)]
        hub.publish(Message("kept", b"x", retain=True), 0.0)
        assert [grant.since for grant in await subscribe(actors, hub, member, "v")] == [1]
        assert [grant.fresh for grant in await subscribe(actors, hub, member, "t", qos=2)] == [False]
        assert hub.publish(message, 0.0) == 1
        assert member.messages == [message]
        answers: list[list[Any]] = []
        hub.remove_routes(member.subscriber, ["t", "unknown"], answers.append)
        actors.scheduler.step()
        assert answers == [[True, False]]
        assert hub.publish(message, 0.0) == 0


class Back:
    """The way back to a publisher."""

    def __init__(self) -> None:
        self.delivered: list[Message] = []
        self.own: list[Message] = []

    def deliver(self, publication: Publication, target: Target[Subscriber]) -> None:
        self.delivered += publication.messages

    def deliver_own(self, publication: Publication, target: Target[Subscriber]) -> None:
        self.own += publication.messages


async def test_the_publishers_own_copy_comes_at_once_and_not_by_mail() -> None:
    async with system() as actors:
        hub, own, other = pubsub(), Member("own"), Member("other")
        actors.start(hub.new_writer())
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
        actors.start(hub.new_writer())
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
            actors.start(each.new_writer())
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


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have the writer crash at its next so many requests."""
    work, left = RouteWriter._work, 0  # pyright: ignore[reportPrivateUsage]

    def crashing(self: RouteWriter, request: Any) -> bool:
        nonlocal left
        if left:
            left -= 1
            raise RuntimeError("the writer crashes")
        return work(self, request)

    monkeypatch.setattr(RouteWriter, "_work", crashing)

    def times(number: int) -> None:
        nonlocal left
        left = number

    return times


async def test_the_routes_outlive_their_writer_and_it_is_asked_again(crash: Callable[[int], None]) -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe(("t", 0))
        await client.publish("kept", b"x", qos=1, retain=True)
        crash(1)
        assert await client.subscribe(("u", 0), ("kept", 0)) == [0, 0]
        await client.expect_publish("kept", b"x")
        for topic in ("t", "u"):
            await client.send(raw.publish(topic, b"x"))
            await client.expect_publish(topic, b"x")
        crash(1)
        await client.send(raw.unsubscribe(3, "t", "u"))
        assert (await client.expect_type(raw.UNSUBACK)).reasons == [0, 0]


async def test_a_request_that_was_lost_twice_is_refused(crash: Callable[[int], None]) -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe(("old", 1))
        crash(2)
        assert await client.subscribe(("t", 0), ("old", 0)) == [0x80, 0x80]
        assert {filter: options.qos for filter, options in here.session("a").session.subscriptions.items()} == {
            "old": 1
        }
        crash(2)
        await client.send(raw.unsubscribe(3, "old"))
        assert (await client.expect_type(raw.UNSUBACK)).reasons == [0x80]
        assert list(here.session("a").session.subscriptions) == ["old"]
        await client.ping()


@pytest.mark.parametrize("crashes", [1, 2])
async def test_a_session_ends_though_the_writer_crashes(crash: Callable[[int], None], crashes: int) -> None:
    """And not before the last route to it is gone: what comes by one would be lost without a word."""
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("t")
        ref = here.session("a").ref
        crash(crashes)
        await client.disconnect()
        await ref.join()
        assert here.node.router.subscriptions == 0


async def test_a_filter_that_makes_trouble_costs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async with room() as here:
        subscribe = here.node.router.subscribe

        def troubled(subscriber: Subscriber, filter: str, options: Options) -> bool:
            if filter == "poison":
                raise RuntimeError(filter)
            return subscribe(subscriber, filter, options)

        monkeypatch.setattr(here.node.router, "subscribe", troubled)
        client = await here.client("a")
        assert await client.subscribe("t", "poison", "u") == [2, 0x80, 2]
        await client.ping()
        assert list(here.session("a").session.subscriptions) == ["t", "u"]


async def test_routes_are_there_before_anything_that_was_read_after_the_subscribe() -> None:
    async with room() as here:
        reader, writer = await here.client("reader"), await here.client("writer")
        with here.node.scheduler.turn:  # as the poller does
            here.read("reader", raw.subscribe(1, ("t", 0)))
            here.read("writer", raw.publish("t", b"x") + raw.PINGREQ)
        assert (await reader.expect_type(raw.SUBACK)).reasons == [0]
        await reader.expect_publish("t", b"x")
        await writer.expect(raw.PINGRESP)


async def test_no_more_subscriptions_than_the_node_takes() -> None:
    async with room(limits={"max_subscriptions": 2}) as here:
        one, two = await here.client("one"), await here.client("two")
        assert await one.subscribe("a", "b") == [2, 2]
        assert await two.subscribe("a", "c") == [0x97, 0x97]
        assert await one.subscribe(("a", 1)) == [1]
        await one.disconnect()
        await two.ping()
        assert await two.subscribe("a") == [2]


async def test_another_life_of_the_node_goes_on_with_its_messages(autojump_clock: MockClock) -> None:
    async with room() as here, room() as there:
        client = await here.client("a")
        for seconds in (5, 50):
            await client.publish(f"t/{seconds}", b"x", qos=1, retain=True, properties=raw.message_expiry(seconds))
        hub = there.node.services.pubsub
        epoch = here.node.services.clock.epoch
        rows = [(each.message.topic.encode(), retained_to_bytes(each, epoch)) for each in here.node.retained]
        hub.restore_retained(rows, epoch)
        heir = await there.client("b")
        await heir.subscribe(("t/5", 0))
        await heir.expect_publish("t/5", b"x")
        await trio.sleep(6)
        assert [each.message.topic for each in hub.retained.match("#", trio.current_time()) if each] == ["t/50"]
        assert len(hub.retained) == 1, "it is swept"


async def test_a_group_may_have_a_strategy_of_its_own() -> None:
    shared = {"strategy": "round_robin_per_group", "strategies": {"orders": "hash_clientid", "one": "sticky"}}
    async with room(shared=shared) as here:
        client = await here.client("a")
        await client.subscribe("$share/orders/t", "$share/one/t", "$share/other/t")
        groups = {group.name: str(group.strategy) for group in here.node.router.match("t").groups}
        assert groups == {"orders": "hash_client", "one": "sticky", "other": "round_robin"}
