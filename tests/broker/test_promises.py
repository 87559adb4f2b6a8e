"""What is promised of durable sessions, line by line: the power fails at each commit, before it and after it, and what
clients have seen until then is true of the next broker."""

import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import pytest
import trio
from trio.testing import MockClock

from tests.broker.disk import Disk, Life
from tests.conformance import raw
from tests.wire import Wire

#: What clients have seen.
Seen = dict[str, Any]
Scene = Callable[[Life, Seen], Awaitable[None]]

PAGE: Final = Path(__file__).parents[2] / "docs" / "durability.md"
#: More than any of the scenes below takes.
MAX_COMMITS: Final = 60


class Story(NamedTuple):
    """Which lines of the table it tells is in what was seen."""

    scene: Scene
    afterwards: Scene
    #: Played by a broker that ends when it is over.
    before: Scene | None = None
    settings: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


#: The lines of the table, and the stories that tell them.
STORIES: Final[dict[str, tuple[tuple[str, ...], Callable[[], Story]]]] = {}


def tells(*lines: str) -> Callable[[Callable[[], Story]], Callable[[], Story]]:
    def note(story: Callable[[], Story]) -> Callable[[], Story]:
        STORIES[story.__name__] = lines, story
        return story

    return note


async def at_each_commit(story: Story, lines: tuple[str, ...] = (), **settings_before: Any) -> None:
    for applied in (False, True):
        for cut_at in range(MAX_COMMITS):
            disk, seen = Disk(), Seen()
            if story.before is not None:
                async with disk.broker(**story.settings, **settings_before) as life:
                    await story.before(life, seen)
            async with disk.broker(cut_at, applied=applied, **story.settings) as life:
                is_whole = await played(story.scene, life, seen)
            async with disk.broker(**story.settings) as life:
                with trio.fail_after(30):
                    await story.afterwards(life, seen)
            if is_whole:
                assert seen.keys() >= set(lines)
                break
        else:
            pytest.fail("more commits than expected")


async def played(scene: Scene, life: Life, seen: Seen) -> bool:
    """Returns False if the power failed meanwhile."""
    async with trio.open_nursery() as nursery:

        async def end() -> None:
            await life.cut_off.wait()
            await trio.testing.wait_all_tasks_blocked()  # all that does not wait for this commit happens
            nursery.cancel_scope.cancel()

        nursery.start_soon(end)
        await scene(life, seen)
        nursery.cancel_scope.cancel()
    return not life.cut_off.is_set()


async def subscribed(life: Life, *filters: str | tuple[str, int]) -> Wire:
    subscriber, _ = await life.stay("subscriber")
    await subscriber.subscribe(*filters)
    return subscriber


async def watching(life: Life) -> None:
    wire, _ = await life.stay("watcher")
    await wire.subscribe(("will", 1))


async def everything(life: Life, client_id: str = "subscriber") -> list[raw.Received]:
    """What comes to a client that does not acknowledge."""
    wire, _ = await life.stay(client_id)
    await wire.send(raw.subscribe(1000, ("end", 2)))
    packets: list[raw.Received] = []
    while True:
        packet = await wire.receive()
        if packet.type == raw.SUBACK:
            life.node.messages.publish("end", b"", qos=2)
        elif packet.topic == "end":
            return packets
        else:
            packets.append(packet)


def payloads(packets: list[raw.Received]) -> list[bytes]:
    return [packet.payload for packet in packets if packet.type == raw.PUBLISH]


# CONNACK

SESSION = "CONNACK to a client whose session outlives its connection"
WILL = "CONNACK to a client with a will"
SUCCESSOR = "CONNACK in place of an earlier session"


@tells(SESSION)
def connack_of_a_new_session() -> Story:
    async def scene(life: Life, seen: Seen) -> None:
        await life.stay("client", expiry=500)
        seen[SESSION] = True

    async def afterwards(life: Life, seen: Seen) -> None:
        session = life.node.sessions.get("client")
        assert session is not None or SESSION not in seen
        assert session is None or session.session.expiry_interval == 500

    return Story(scene, afterwards)


@tells(SESSION, WILL)
def connack_of_a_session_on_other_terms() -> Story:
    async def before(life: Life, seen: Seen) -> None:
        await subscribed(life, ("t", 1))
        await watching(life)

    async def scene(life: Life, seen: Seen) -> None:
        _, present = await life.stay("subscriber", expiry=5000, will=raw.Will("will", b"new", 1))
        assert present
        seen[SESSION] = seen[WILL] = True

    async def afterwards(life: Life, seen: Seen) -> None:
        session = life.node.sessions.get("subscriber")
        assert session is not None
        wills = payloads(await everything(life, "watcher"))
        assert (session.session.expiry_interval, wills) == (5000, [b"new"]) or SESSION not in seen

    return Story(scene, afterwards, before)


@tells(WILL)
def connack_of_clients_whose_sessions_end_with_their_connections() -> Story:
    async def before(life: Life, seen: Seen) -> None:
        await watching(life)

    async def scene(life: Life, seen: Seen) -> None:
        for version in (4, 5):
            wire = await life.wire(version)
            await wire.connect(f"client {version}", will=raw.Will("will", b"%d" % version, 1))
            seen[str(version)] = seen[WILL] = True

    async def afterwards(life: Life, seen: Seen) -> None:
        wills = payloads(await everything(life, "watcher"))
        assert sorted(wills) == [b"4", b"5"][: len(wills)]
        assert seen.keys() - {WILL} <= {will.decode() for will in wills}

    return Story(scene, afterwards, before)


def clean_start(expiry: int) -> Story:
    """In place of a session with half of an exchange of QoS 2."""

    async def before(life: Life, seen: Seen) -> None:
        await subscribed(life, ("t", 2))
        publisher, _ = await life.stay("publisher")
        await publisher.subscribe("old")
        await publisher.send(raw.publish("t", b"half", qos=2, packet_id=5))
        await publisher.expect_type(raw.PUBREC)

    async def scene(life: Life, seen: Seen) -> None:
        publisher = await life.wire()
        await publisher.connect("publisher", properties=raw.session_expiry(expiry))
        seen[SUCCESSOR] = True

    async def afterwards(life: Life, seen: Seen) -> None:
        session = life.node.sessions.get("publisher")
        if SUCCESSOR in seen:
            assert (session is not None) is (expiry > 0)
        if session is None or SUCCESSOR in seen:
            publisher, _ = await life.stay("publisher")
            await publisher.publish("t", b"new", qos=2, packet_id=5)
            assert payloads(await everything(life)) == [b"new"]
        if session is not None:
            assert "old" not in session.session.subscriptions or SUCCESSOR not in seen

    return Story(scene, afterwards, before)


@tells(SUCCESSOR)
def connack_of_a_clean_start() -> Story:
    return clean_start(1000)


@tells(SUCCESSOR)
def connack_of_a_clean_start_that_leaves_nothing() -> Story:
    return clean_start(0)


# The close after a DISCONNECT

CLOSE = "The close after a DISCONNECT"


@tells(CLOSE)
def close_after_a_disconnect_that_takes_the_will_away() -> Story:
    async def before(life: Life, seen: Seen) -> None:
        await watching(life)

    async def scene(life: Life, seen: Seen) -> None:
        stays, _ = await life.stay("stays", will=raw.Will("will", b"stays", 1))
        goes = await life.wire()
        await goes.connect("goes", will=raw.Will("will", b"goes", 1))
        for name, wire in (("stays", stays), ("goes", goes)):
            await wire.disconnect()
            seen[name] = seen[CLOSE] = True

    async def afterwards(life: Life, seen: Seen) -> None:
        assert not {will.decode() for will in payloads(await everything(life, "watcher"))} & seen.keys()

    return Story(scene, afterwards, before)


@tells(CLOSE)
def close_after_a_disconnect_with_an_expiry_interval() -> Story:
    async def scene(life: Life, seen: Seen) -> None:
        for name, expiry in (("longer", 5000), ("over", 0)):
            wire, _ = await life.stay(name)
            await wire.disconnect(0, raw.session_expiry(expiry))
            seen[name] = seen[CLOSE] = True

    async def afterwards(life: Life, seen: Seen) -> None:
        longer, over = map(life.node.sessions.get, ("longer", "over"))
        assert "longer" not in seen or (longer is not None and longer.session.expiry_interval == 5000)
        assert "over" not in seen or over is None

    return Story(scene, afterwards)


# PUBACK to a publisher

PUBACK = "PUBACK to a publisher"


@tells(PUBACK)
def puback_for_a_client_that_is_away() -> Story:
    async def scene(life: Life, seen: Seen) -> None:
        await (await subscribed(life, ("t", 1))).abort()
        publisher = await life.wire()
        await publisher.connect("publisher")
        for payload in (b"1", b"2", b"3"):
            await publisher.publish("t", payload, qos=1)
            seen[payload.decode()] = seen[PUBACK] = payload

    async def afterwards(life: Life, seen: Seen) -> None:
        got = payloads(await everything(life))
        assert got == sorted(got)
        assert {*seen.values()} <= {*got}

    return Story(scene, afterwards)


@tells(PUBACK)
def puback_for_a_client_that_has_not_come_since_the_broker_began() -> Story:
    async def before(life: Life, seen: Seen) -> None:
        await subscribed(life, ("t", 1), ("$share/g/t", 1))

    async def scene(life: Life, seen: Seen) -> None:
        publisher = await life.wire()
        await publisher.connect("publisher")
        for payload in (b"1", b"2"):
            await publisher.publish("t", payload, qos=1)
            seen[payload.decode()] = seen[PUBACK] = payload

    async def afterwards(life: Life, seen: Seen) -> None:
        got = payloads(await everything(life))
        assert all(got.count(payload) == 2 for payload in seen.values())  # by either subscription

    return Story(scene, afterwards, before)


@tells(PUBACK)
def puback_for_a_client_that_does_not_acknowledge() -> Story:
    async def scene(life: Life, seen: Seen) -> None:
        subscriber = await subscribed(life, ("t", 1))
        publisher = await life.wire()
        await publisher.connect("publisher")
        for payload in (b"1", b"2"):
            await publisher.publish("t", payload, qos=1)
            seen[payload.decode()] = seen[PUBACK] = await subscriber.receive()

    async def afterwards(life: Life, seen: Seen) -> None:
        again = {packet.payload: (packet.packet_id, packet.dup) for packet in await everything(life)}
        for packet in seen.values():
            assert again[packet.payload] == (packet.packet_id, True)

    return Story(scene, afterwards)


async def test_puback_needs_no_commit_if_the_client_has_acknowledged_or_nobody_durable_wants_the_message() -> None:
    disk = Disk()
    async with disk.broker() as life:
        subscriber = await subscribed(life, ("t", 1))
        publisher = await life.wire()
        await publisher.connect("publisher")
        life.fill()
        await publisher.publish("nobody", b"", qos=1)
        await publisher.send(raw.publish("t", b"", qos=1, packet_id=7))
        await publisher.expect_nothing()
        await subscriber.take_publish("t", qos=1)
        await publisher.expect(raw.ack(raw.PUBACK, 7))


# QoS 1 PUBLISH to a durable session, and its client's PUBACK


async def test_a_qos_1_publish_waits_for_nothing_and_comes_again_unless_its_puback_is_stored() -> None:
    async def scene(life: Life, seen: Seen) -> None:
        subscriber = await subscribed(life, ("t", 1))
        publisher = await life.wire()
        await publisher.connect("publisher")
        await publisher.publish("t", b"1", qos=1)
        await subscriber.take_publish("t", b"1", qos=1)
        await subscriber.ping()
        seen["acknowledged"] = True
        await publisher.publish("t", b"2", qos=1)  # behind the PUBACK
        seen["stored"] = await subscriber.receive()

    async def afterwards(life: Life, seen: Seen) -> None:
        again = {packet.payload: packet for packet in await everything(life)}
        if "stored" in seen:
            assert again.keys() == {b"2"}
        assert all(packet.dup for packet in again.values()) or "acknowledged" not in seen

    await at_each_commit(Story(scene, afterwards))


async def test_nobody_waits_for_what_a_subscriber_acknowledges() -> None:
    disk = Disk()
    async with disk.broker(session={"max_inflight": 1}) as life:
        subscriber = await subscribed(life, ("t", 1))
        life.fill()
        for number in range(5):
            life.node.messages.publish("t", b"%d" % number, qos=1)
        for number in range(5):
            await subscriber.take_publish("t", b"%d" % number, qos=1)


# PUBREC and PUBCOMP to a publisher

PUBREC = "PUBREC to a publisher whose session outlives its connection"
PUBCOMP = "PUBCOMP to a publisher"


async def exchange(life: Life, seen: Seen) -> None:
    await (await subscribed(life, ("t", 2))).abort()
    seen["subscribed"] = True
    publisher, _ = await life.stay("publisher")
    await publisher.send(raw.publish("t", b"once", qos=2, packet_id=5))
    await publisher.expect_type(raw.PUBREC)
    seen[PUBREC] = True
    await publisher.send(raw.ack(raw.PUBREL, 5))
    await publisher.expect_type(raw.PUBCOMP)
    seen[PUBCOMP] = True


@tells(PUBREC, PUBCOMP)
def pubrec_and_pubcomp() -> Story:
    async def afterwards(life: Life, seen: Seen) -> None:
        if "subscribed" not in seen:
            return
        publisher, present = await life.stay("publisher")
        assert present or PUBREC not in seen
        if PUBREC not in seen:
            await publisher.send(raw.publish("t", b"once", qos=2, packet_id=5, dup=True))
            await publisher.expect_type(raw.PUBREC)
        await publisher.send(raw.ack(raw.PUBREL, 5))
        assert (await publisher.expect_type(raw.PUBCOMP)).reason == 0
        assert payloads(await everything(life)) == [b"once"]

    return Story(exchange, afterwards)


@tells(PUBCOMP)
def a_released_message_goes_from_its_publisher_to_its_receivers_in_one_commit() -> Story:
    async def afterwards(life: Life, seen: Seen) -> None:
        if PUBREC in seen:
            publisher = life.node.sessions.get("publisher")
            assert publisher is not None
            came = payloads(await everything(life))
            assert len(publisher.session.awaiting_rel) + len(came) == 1
            assert came or PUBCOMP not in seen

    return Story(exchange, afterwards)


# QoS 2 PUBLISH to a durable session, PUBREL to it, and its client's PUBCOMP

PUBLISH = "QoS 2 PUBLISH to a session that outlives its connection"
PUBREL = "PUBREL to such a session"


@tells(PUBLISH, PUBREL)
def a_qos_2_publish_comes_again_with_its_packet_id_and_a_pubrel_in_its_place() -> Story:
    async def scene(life: Life, seen: Seen) -> None:
        subscriber = await subscribed(life, ("t", 2))
        for payload in (b"1", b"2"):
            life.node.messages.publish("t", payload, qos=2)
            seen[f"PUBLISH {payload!r}"] = await subscriber.receive()
            seen[PUBLISH] = True
        await subscriber.send(raw.ack(raw.PUBREC, 1))
        assert (await subscriber.expect_type(raw.PUBREL)).packet_id == 1
        seen[PUBREL] = True
        await subscriber.send(raw.ack(raw.PUBCOMP, 1))
        await subscriber.subscribe("more")
        seen["PUBCOMP is stored"] = True

    async def afterwards(life: Life, seen: Seen) -> None:
        sent = {packet.packet_id: packet.payload for key, packet in seen.items() if key.startswith("PUBLISH")}
        again = await everything(life)
        released = [packet.packet_id for packet in again if packet.type == raw.PUBREL & 0xF0]
        repeated = {packet.packet_id: packet.payload for packet in again if packet.type == raw.PUBLISH}
        assert all(packet.dup for packet in again if packet.packet_id in sent and packet.type == raw.PUBLISH)
        assert sent.items() <= {**repeated, **{packet_id: sent.get(packet_id) for packet_id in [1, *released]}}.items()
        assert released in ([], [1])
        assert 1 in {*repeated, *released} or PUBREL in seen or not sent
        if PUBREL in seen:
            assert 1 not in repeated
        if "PUBCOMP is stored" in seen:
            assert not released

    return Story(scene, afterwards)


@tells(PUBLISH)
def a_new_message_does_not_get_a_packet_id_that_the_client_knows() -> Story:
    async def scene(life: Life, seen: Seen) -> None:
        subscriber = await subscribed(life, ("t", 2))
        life.node.messages.publish("t", b"old", qos=2)
        seen[PUBLISH] = await subscriber.receive()

    async def afterwards(life: Life, seen: Seen) -> None:
        if PUBLISH in seen:
            life.node.messages.publish("t", b"new", qos=2)
            old, new = await everything(life)
            assert (old.packet_id, old.payload) == (seen[PUBLISH].packet_id, b"old")
            assert new.packet_id != old.packet_id

    return Story(scene, afterwards)


# SUBACK, UNSUBACK

SUBACK = "SUBACK, UNSUBACK to such a session"


@tells(SUBACK)
def suback_and_unsuback() -> Story:
    async def scene(life: Life, seen: Seen) -> None:
        subscriber = await subscribed(life, ("t", 1), ("u", 2))
        seen["SUBACK"] = True
        await subscriber.send(raw.unsubscribe(2, "t"))
        seen["UNSUBSCRIBE"] = True
        await subscriber.expect_type(raw.UNSUBACK)
        seen[SUBACK] = True

    async def afterwards(life: Life, seen: Seen) -> None:
        session = life.node.sessions.get("subscriber")
        filters = set[str]() if session is None else {*session.session.subscriptions}
        assert "u" in filters or "SUBACK" not in seen
        assert "t" in filters or "SUBACK" not in seen or "UNSUBSCRIBE" in seen
        assert "t" not in filters or SUBACK not in seen

    return Story(scene, afterwards)


# Messages that the broker keeps

RETAINED = "PUBACK, PUBCOMP to the publisher of a retained message"
DELAYED = "PUBACK, PUBREC for a message to `$delayed/…`"
STREAM = "PUBACK, PUBCOMP for a message that a stream takes"


def retained_messages(qos: int) -> Story:
    """Two, and what deletes the topic, each acknowledged before the next is sent."""
    sent = (b"first", b"second", b"")

    async def scene(life: Life, seen: Seen) -> None:
        publisher = await life.wire()
        await publisher.connect("publisher")
        for number, payload in enumerate(sent):
            properties = raw.user_property("number", str(number)) if payload else b""
            await publisher.publish("t", payload, qos=qos, retain=True, properties=properties)
            seen["acknowledged"] = number + 1
            seen[RETAINED] = True

    async def afterwards(life: Life, seen: Seen) -> None:
        kept = [each.message for each in life.node.retained]
        done: int = seen.get("acknowledged", 0)
        states = [b"", *sent]  # those that may be there are the one acknowledged last, and the next
        assert [message.payload for message in kept] in [[state] if state else [] for state in states[done : done + 2]]
        for message in kept:
            number = str(sent.index(message.payload))
            assert message.publisher == "publisher"
            assert list(message.properties.get("user_property", ())) == [("number", number)]

    return Story(scene, afterwards)


@tells(RETAINED)
def a_retained_message_at_qos_1() -> Story:
    return retained_messages(1)


@tells(RETAINED)
def a_retained_message_at_qos_2() -> Story:
    return retained_messages(2)


@tells(DELAYED)
def a_delayed_message() -> Story:
    async def scene(life: Life, seen: Seen) -> None:
        await life.node.plugins.enable("delayed-publish")
        publisher = await life.wire()
        await publisher.connect("publisher")
        for qos, answer in ((1, raw.PUBACK), (2, raw.PUBREC)):
            await publisher.send(raw.publish(f"$delayed/3600/{qos}", b"x", qos=qos, packet_id=qos))
            await publisher.expect_type(answer)
            seen[str(qos)] = seen[DELAYED] = True

    async def afterwards(life: Life, seen: Seen) -> None:
        await life.node.plugins.enable("delayed-publish")
        rows = cast("list[dict[str, str]]", life.node.plugins.call("delayed-publish", "list", {}))
        held = {row["topic"] for row in rows}
        assert seen.keys() - {DELAYED} <= held

    return Story(scene, afterwards)


@tells(STREAM)
def a_message_that_a_stream_takes() -> Story:
    async def scene(life: Life, seen: Seen) -> None:
        publisher = await life.wire()
        await publisher.connect("publisher")
        for qos in (1, 2):
            await publisher.publish("s/t", b"%d" % qos, qos=qos)
            seen["acknowledged"] = qos
            seen[STREAM] = True

    async def afterwards(life: Life, seen: Seen) -> None:
        found = life.node.streams.info("s").messages
        done: int = seen.get("acknowledged", 0)
        assert done <= found <= done + 1
        for sequence in range(1, found + 1):
            assert (await life.node.streams.get("s", sequence)).message.payload == b"%d" % sequence

    return Story(scene, afterwards, settings={"streams": [{"name": "s", "filters": ["s/#"]}]})


# The table


@pytest.mark.parametrize("name", STORIES)
async def test_what_was_promised_is_true_of_the_next_broker(name: str) -> None:
    lines, story = STORIES[name]
    await at_each_commit(story(), lines)


def test_each_line_of_the_documented_table_has_a_story() -> None:
    section = PAGE.read_text().partition("\n## What waits for the disk\n")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| (.+?) +\|", section, re.MULTILINE)[1:]
    told = {line for lines, _ in STORIES.values() for line in lines}
    assert told == {*documented}


# Time


class Clock:
    """The broker's clocks: those of the machine, and of a process that begins later."""

    def __init__(self, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self._mock_clock = mock_clock
        self._now = time.time()
        monkeypatch.setattr(time, "time", lambda: self._now)

    def jump(self, seconds: float) -> None:
        self._now += seconds
        self._mock_clock.jump(seconds)


async def test_a_session_expires_from_the_crash_on(mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(mock_clock, monkeypatch)
    for down, left in ((1100, None), (900, 100)):
        disk = Disk()
        async with disk.broker() as life:
            await subscribed(life, "t")
        clock.jump(down)
        async with disk.broker() as life:
            await trio.testing.wait_all_tasks_blocked()
            assert (life.node.sessions.get("subscriber") is None) is (left is None)
            if left is not None:
                clock.jump(left + 20)  # the crash may have been a heartbeat later
                await trio.testing.wait_all_tasks_blocked()
                assert life.node.sessions.get("subscriber") is None


async def test_a_message_expires_by_the_clock(mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(mock_clock, monkeypatch)
    disk = Disk()
    async with disk.broker() as life:
        await (await subscribed(life, ("t", 1))).abort()
        publisher = await life.wire()
        await publisher.connect("publisher")
        for interval in (100, 300):
            await publisher.publish("t", b"%d" % interval, qos=1, properties=raw.message_expiry(interval))
    clock.jump(200)
    async with disk.broker() as life:
        subscriber, _ = await life.stay("subscriber")
        packet = await subscriber.expect_publish("t", b"300", qos=1)
        assert packet.get(raw.MESSAGE_EXPIRY) in (100, 101)


@pytest.mark.parametrize("delay", [0, 100])
async def test_the_will_of_a_client_that_was_connected_is_published_after_its_delay(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch, delay: int
) -> None:
    clock = Clock(mock_clock, monkeypatch)
    disk = Disk()
    async with disk.broker() as life:
        await (await subscribed(life, "will")).abort()
        wire, _ = await life.stay("client", will=raw.Will("will", b"gone", 1, properties=raw.will_delay(delay)))
        await wire.subscribe("a commit")
    clock.jump(50)
    async with disk.broker() as life:
        subscriber, _ = await life.stay("subscriber")
        if delay:
            await subscriber.expect_nothing()
            clock.jump(100)
        await subscriber.expect_publish("will", b"gone", qos=1)
    async with disk.broker() as life:
        assert payloads(await everything(life)) == [b"gone"]  # once


# A second crash


async def test_the_power_fails_again_at_each_commit_of_the_next_broker() -> None:
    async def before(life: Life, seen: Seen) -> None:
        subscriber = await subscribed(life, ("t", 2))
        publisher, _ = await life.stay("publisher", will=raw.Will("t", b"will", 1))
        for number, qos in enumerate((1, 2, 1, 2)):
            await publisher.publish("t", b"%d" % number, qos=qos)
        await subscriber.receive()
        second = await subscriber.receive()
        await subscriber.send(raw.ack(raw.PUBREC, second.packet_id))
        await subscriber.expect_type(raw.PUBREL)
        await publisher.send(raw.publish("t", b"held", qos=2, packet_id=9))
        await publisher.expect_type(raw.PUBREC)

    async def scene(life: Life, seen: Seen) -> None:
        await everything(life)

    async def afterwards(life: Life, seen: Seen) -> None:
        pubrel, *rest = await everything(life)
        assert (pubrel.type, pubrel.packet_id) == (raw.PUBREL & 0xF0, 2)
        # those of QoS 1 may overtake those of QoS 2, which wait for the store
        assert sorted([packet.payload for packet in rest if packet.topic == "t"]) == [b"0", b"2", b"3", b"will"]
        publisher = life.node.sessions.get("publisher")
        assert publisher is not None
        assert len(publisher.session.awaiting_rel) == 1

    await at_each_commit(Story(scene, afterwards, before), session={"max_inflight": 2})
