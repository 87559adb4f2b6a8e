"""Retained messages on their way to a new subscription: all of them, once, and never after something fresher."""

from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.room import room
from tests.conformance import raw
from trunkline.broker.routes import Grant, Subscriber
from trunkline.broker.session.replay import Replay, Replays
from trunkline.hooks import ClientInfo, Deny
from trunkline.mqtt.message import Message
from trunkline.mqtt.publication import Publication
from trunkline.router import Options, RetainedStore, Target

TARGET = Target(Subscriber("a", lambda mail: None), Options())


def retained(topic: str, guid: int = 0, payload: bytes = b"x") -> Message:
    return Message(topic, payload, retain=True, guid=guid)


def replay(store: RetainedStore, filter: str = "#", **settings: Any) -> Replay:
    allowed = settings.get("allowed", lambda topic: True)
    return Replay(Grant(filter, Options(), True, store.sequence), TARGET, store, allowed, 0.0)


def rest(replaying: Replay) -> list[Message]:
    messages: list[Message] = []
    while not replaying.over:
        message = replaying.next()
        if message is not None:
            messages.append(message)
    return messages


def test_all_that_was_stored_before_and_nothing_that_came_after() -> None:
    store = RetainedStore()
    for topic in "ab":
        store.store(retained(topic), 0.0)
    replaying = replay(store)
    store.store(retained("c"), 0.0)
    assert [message.topic for message in rest(replaying)] == ["a", "b"]
    assert replaying.next() is None


def before(store: RetainedStore, replaying: Replay, live: Message) -> Publication | None:
    """What comes before a live message because of this replay."""
    replays = Replays(store, 10)
    replays.add(replaying)
    earlier = replays.overtaken_by(live.topic, 0.0)
    return None if earlier is None else earlier[0]


def test_a_live_message_lets_what_was_retained_go_first_and_once() -> None:
    store = RetainedStore()
    for topic in "ab":
        store.store(retained(topic), 0.0)
    replaying = replay(store)
    live = Message("b", b"live", guid=200)
    assert before(store, replaying, live) is store.get("b", 0.0)
    assert before(store, replaying, live) is None
    assert [message.topic for message in rest(replaying)] == ["a"]
    assert before(store, replaying, Message("a", b"live", guid=201)) is None  # it was sent
    assert before(store, replay(store, "a"), live) is None  # another filter


def test_a_live_message_concerns_the_replays_of_its_topic() -> None:
    store = RetainedStore()
    for topic in ("a/1", "b/1"):
        store.store(retained(topic), 0.0)
    replays = Replays(store, 10)
    for number in range(1000):
        replays.add(replay(store, f"b/{number}"))
    for filter in ("a/+", "a/1", "a/#"):
        replays.add(replay(store, filter))
    kept = store.get("a/1", 0.0)
    found = [replays.overtaken_by("a/1", 0.0) for _ in range(4)]
    assert [each and each[0] for each in found] == [kept] * 3 + [None]
    assert replays.overtaken_by("a/2", 0.0) is None
    replays.end(["a/+", "a/1", "a/#", "unknown"])
    assert len(replays) == 1000
    replays.add(replay(store, "b/0"))
    assert len(replays) == 1000


def topics_of(replays: Replays, room: int = 1) -> list[str] | None:
    """Of what comes next; None while others have their turn."""
    taken = replays.take(room, 0.0)
    return None if taken is None else [publication.topic for publication, *_ in taken]


def test_they_come_one_after_the_other_and_others_have_a_turn_after_each_batch() -> None:
    store = RetainedStore()
    for number in range(5):
        store.store(retained(f"a/{number}"), 0.0)
    replays = Replays(store, 2)
    replays.add(replay(store, "a/+"))
    replays.add(replay(store, "a/0"))
    got = list[str]()
    turns = 0
    while replays.waits:
        topics = topics_of(replays)
        turns += topics is None
        got += topics or ()
    assert sorted(got[:5]) == [f"a/{number}" for number in range(5)]
    assert got[5:] == ["a/0"]
    assert turns == 3  # five messages, one, and the end of each
    assert topics_of(replays) == []


def test_without_room_in_the_window_only_what_needs_none_comes() -> None:
    store = RetainedStore()
    store.store(retained("a"), 0.0)
    for qos in (0, 1):
        target = Target(TARGET.subscriber, Options(qos))
        replays = Replays(store, 10)
        replays.add(Replay(Grant("#", Options(), True, store.sequence), target, store, lambda message: True, 0.0))
        assert topics_of(replays, room=0) == ([] if qos else ["a"])
        assert replays.waits
        assert topics_of(replays) == (["a"] if qos else [])


def test_live_messages_of_other_topics_leave_nothing_behind() -> None:
    store = RetainedStore()
    store.store(retained("a"), 0.0)
    replaying = replay(store)
    for number in range(100):
        assert before(store, replaying, Message(f"t/{number}", b"live")) is None
    assert not replaying._sent  # pyright: ignore[reportPrivateUsage]


def test_what_was_replaced_meanwhile_comes_live_alone() -> None:
    store = RetainedStore()
    store.store(retained("a", 1), 0.0)
    replaying = replay(store)
    fresh = retained("a", 200)
    store.store(fresh, 0.0)
    assert before(store, replaying, fresh) is None
    assert replaying.next() is None


def test_what_the_client_may_not_have_is_left_out() -> None:
    store = RetainedStore()
    for topic in ("open", "secret"):
        store.store(retained(topic, 1), 0.0)
    replaying = replay(store, allowed=lambda message: message.topic == "open")
    assert before(store, replaying, Message("secret", b"", guid=200)) is None
    assert [message.topic for message in rest(replaying)] == ["open"]


@given(st.lists(st.tuples(st.sampled_from(["step", "live", "keep", "drop"]), st.sampled_from("abcde")), max_size=40))
def test_whatever_happens_meanwhile_nothing_stale_comes_after_something_fresh(events: list[tuple[str, str]]) -> None:
    store = RetainedStore()
    for guid, topic in enumerate("abcde", 1):
        store.store(retained(topic, guid), 0.0)
    replaying, guid = replay(store), 100
    got: list[tuple[str, int]] = []

    def take(message: Publication | None) -> None:
        if message is not None:
            got.append((message.topic, message.guid))

    for event, topic in events:
        guid += 1
        if event == "step":
            take(replaying.next())
        elif event == "drop":
            store.delete(topic)
        else:
            live = retained(topic, guid) if event == "keep" else Message(topic, b"", guid=guid)
            if event == "keep":
                store.store(live, 0.0)
            take(before(store, replaying, live))
            take(live)
    for message in rest(replaying):
        take(message)
    for topic in "abcde":
        guids = [guid for name, guid in got if name == topic]
        assert guids == sorted(set(guids))


async def test_what_was_retained_is_not_missed_because_an_older_message_was_released_later() -> None:
    async with room() as here:
        slow, quick, reader = await here.client("slow"), await here.client("quick"), await here.client("reader")
        await slow.send(raw.publish("x", b"old", qos=2, packet_id=7))
        await slow.expect_type(raw.PUBREC)
        await quick.publish("t", b"kept", qos=1, retain=True)
        await slow.send(raw.ack(raw.PUBREL, 7))
        await slow.expect_type(raw.PUBCOMP)
        await reader.subscribe(("t", 0))
        await reader.expect_publish("t", b"kept")


async def test_what_is_released_while_retained_messages_are_sent_comes_once() -> None:
    async with room() as here:
        slow, quick = await here.client("slow"), await here.client("quick")
        await slow.send(raw.publish("z", b"released", qos=2, packet_id=7, retain=True))
        await slow.expect_type(raw.PUBREC)
        for number in range(5):
            await quick.publish(f"a{number}", b"kept", qos=1, retain=True)
        reader = await here.client("reader", properties=raw.receive_maximum(1))
        await reader.subscribe(("#", 2))
        await slow.send(raw.ack(raw.PUBREL, 7))
        await slow.expect_type(raw.PUBCOMP)
        topics = list[str]()
        for _ in range(6):
            packet = await reader.expect_type(raw.PUBLISH)
            topics.append(packet.topic)
            await reader.acknowledge(packet)
        await reader.expect_nothing()
        assert sorted(topics) == ["a0", "a1", "a2", "a3", "a4", "z"]


async def test_what_was_retained_takes_part_in_an_upgrade_of_the_qos() -> None:
    async with room(session={"upgrade_qos": True}) as here:
        here.broker.publish("t", b"x", retain=True)
        reader = await here.client("a")
        await reader.subscribe(("t", 1))
        await reader.take_publish("t", b"x", qos=1)


async def test_filters_that_lead_nowhere_hold_up_nobody() -> None:
    async with room(retained={"replay_batch": 1}) as here:
        for number in range(20_000):
            here.broker.publish(f"{number}/{'ab'[number % 2]}/{'xy'[number % 2]}", b"x", retain=True)
        greedy, other = await here.client("greedy"), await here.client("other")
        await greedy.subscribe("+/a/y", "+/b/x", "+/+/nothing")
        session = here.session("greedy")
        await other.ping()
        replays = session._outbound._replays  # pyright: ignore[reportPrivateUsage]
        assert replays  # the other one had its turn long before the end
        await greedy.ping()
        here.broker.publish("1/a/y", b"live")
        await greedy.expect_publish("1/a/y", b"live")


async def test_a_large_message_is_kept_without_its_encoded_forms() -> None:
    async with room() as here:
        payload = bytes(10_000)
        readers = [await here.client(f"reader{version}", version) for version in (4, 5)]
        for reader in readers:
            await reader.subscribe(("t", 1))
        publisher = await here.client("publisher")
        await publisher.publish("t", payload, qos=1, retain=True)
        for reader in readers:
            await reader.take_publish("t", payload, qos=1)
        for qos in (0, 1, 2):
            for reader in readers:
                await reader.subscribe(("t", qos))
                await reader.acknowledge(await reader.expect_type(raw.PUBLISH))
        kept = here.node.retained.get("t", trio.current_time())
        assert kept is not None
        assert (kept.wire3, kept.wire5, kept.frames) == (None, None, None)


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_live_message_waits_for_no_more_than_a_batch(qos: int) -> None:
    async with room(retained={"replay_batch": 10}) as here:
        for number in range(2000):
            here.broker.publish(f"t/{number}", b"x", qos=1, retain=True)
        reader = await here.client("reader", properties=raw.receive_maximum(20))
        await reader.send(raw.subscribe(1, ("#", qos)))
        await reader.expect_type(raw.SUBACK)
        for _ in range(20):
            await reader.acknowledge(await reader.expect_type(raw.PUBLISH))
        sent = here.node.metrics.messages_out[qos]
        here.broker.publish("live", b"x", qos=qos)
        before = 0
        while (packet := await reader.expect_type(raw.PUBLISH)).topic != "live":
            await reader.acknowledge(packet)
            before += 1
        # what was on its way already, a batch, and what the window held back
        assert before <= sent - 20 + 10 + 20
        assert before < 1500


async def test_whoever_unsubscribes_gets_no_more_of_it() -> None:
    async with room(retained={"replay_batch": 1}) as here:
        for number in range(50):
            here.broker.publish(f"t/{number}", b"x", qos=1, retain=True)
        reader = await here.client("reader", properties=raw.receive_maximum(1))
        await reader.subscribe(("#", 1))
        await reader.send(raw.unsubscribe(2, "#"))
        first = await reader.expect_type(raw.PUBLISH)
        await reader.expect_type(raw.UNSUBACK)
        await reader.acknowledge(first)
        left = 0
        await reader.send(raw.PINGREQ)
        while (packet := await reader.receive()).type != raw.PINGRESP[0]:
            await reader.acknowledge(packet)
            left += 1
        assert left <= 1  # what was queued


async def test_what_its_publisher_may_not_publish_any_more_is_not_given_out() -> None:
    denied = set[str]()

    def rules(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Deny | None:
        return Deny() if action == "publish" and client.client_id in denied else None

    async with room(retained={"check_retain_source": True}) as here:
        here.node.hooks.add("client.check_acl", rules)
        good, bad = await here.client("good"), await here.client("bad")
        for name, wire in (("good", good), ("bad", bad)):
            await wire.publish(f"t/{name}", b"x", qos=1, retain=True)
        here.broker.publish("t/own", b"x", retain=True)
        await bad.disconnect()
        denied |= {"bad", ""}
        reader = await here.client("reader")
        await reader.subscribe(("t/+", 0))
        topics = {(await reader.expect_type(raw.PUBLISH)).topic for _ in range(2)}
        await reader.expect_nothing()
        assert topics == {"t/good", "t/own"}
        denied.clear()
        await reader.subscribe(("t/bad", 0))
        await reader.expect_publish("t/bad", b"x")


async def test_what_is_known_of_a_publisher_counts_while_its_session_is_here() -> None:
    def rules(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Deny | None:
        return Deny() if action == "publish" and not client.listener else None

    async with room(retained={"check_retain_source": True}) as here:
        here.node.hooks.add("client.check_acl", rules)
        publisher, reader = await here.stay("publisher"), await here.client("reader")
        await publisher.publish("t", b"x", qos=1, retain=True)
        await publisher.disconnect()
        await reader.subscribe(("t", 0))
        await reader.expect_publish("t", b"x")
        publisher = await here.client("publisher")
        await publisher.disconnect()
        await reader.subscribe(("t", 0))
        await reader.expect_nothing()


async def test_twenty_thousand_topics_hold_up_nobody() -> None:
    async with room(mqtt={"max_packet_size": "1MiB"}) as here:
        for number in range(20_000):
            here.broker.publish(f"t/{number}", b"x", retain=True)
        greedy, other = await here.client("greedy"), await here.client("other")
        await greedy.send(raw.subscribe(1, ("#", 0)))
        await greedy.expect_type(raw.SUBACK)
        await other.ping()
        sent = here.node.metrics.messages_out[0]
        assert sent < 10_000  # the other one had its turn long before the end
        topics = set()
        while len(topics) < 20_000:
            topics.add((await greedy.expect_type(raw.PUBLISH)).topic)
        await greedy.ping()


async def test_what_is_not_sent_when_the_connection_ends_is_counted() -> None:
    async with room(retained={"replay_batch": 1}) as here:
        for number in range(50):
            here.broker.publish(f"t/{number}", b"x", qos=1, retain=True)
        reader = await here.stay("reader")
        await reader.subscribe(("t/1", 1))
        await reader.take_publish("t/1", b"x", qos=1)
        metrics = here.node.metrics
        slow = await here.client("slow", properties=raw.receive_maximum(1))
        await slow.subscribe(("#", 1), ("t/#", 1))
        await slow.abort()
        await reader.disconnect()
        await trio.testing.wait_all_tasks_blocked()
        assert metrics.messages_retained_cut == 2
