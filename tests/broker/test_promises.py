"""What is promised of durable sessions, line by line: the power fails at each commit, before it and after it, and what
clients have seen until then is true of the next broker."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.disk import Disk, Life
from tests.conformance import raw
from tests.wire import Wire

#: What clients have seen.
Seen = dict[str, Any]
Scene = Callable[[Life, Seen], Awaitable[None]]

#: More than any of the scenes below takes.
MAX_COMMITS = 60


async def at_each_commit(scene: Scene, afterwards: Scene, before: Scene | None = None, **settings: Any) -> None:
    """`before` is played by a broker with these settings, which ends when it is over."""
    for applied in (False, True):
        for cut_at in range(MAX_COMMITS):
            disk, seen = Disk(), Seen()
            if before is not None:
                async with disk.broker(**settings) as life:
                    await before(life, seen)
            async with disk.broker(cut_at, applied=applied) as life:
                is_whole = await played(scene, life, seen)
            async with disk.broker() as life:
                with trio.fail_after(30):
                    await afterwards(life, seen)
            if is_whole:
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


async def everything(life: Life, client_id: str = "subscriber") -> list[raw.Received]:
    """What comes to a client that does not acknowledge."""
    wire, _ = await life.stay(client_id)
    await wire.send(raw.subscribe(1000, ("end", 2)))
    packets: list[raw.Received] = []
    while True:
        packet = await wire.receive()
        if packet.type == raw.SUBACK:
            life.node.publish("end", b"", qos=2)
        elif packet.topic == "end":
            return packets
        else:
            packets.append(packet)


def payloads(packets: list[raw.Received]) -> list[bytes]:
    return [packet.payload for packet in packets if packet.type == raw.PUBLISH]


# PUBACK to a publisher


async def test_puback_for_a_client_that_is_away() -> None:
    async def scene(life: Life, seen: Seen) -> None:
        await (await subscribed(life, ("t", 1))).abort()
        publisher = await life.wire()
        await publisher.connect("publisher")
        for payload in (b"1", b"2", b"3"):
            await publisher.publish("t", payload, qos=1)
            seen[payload.decode()] = payload

    async def afterwards(life: Life, seen: Seen) -> None:
        got = payloads(await everything(life))
        assert got == sorted(got)
        assert {*seen.values()} <= {*got}

    await at_each_commit(scene, afterwards)


async def test_puback_for_a_client_that_has_not_come_since_the_broker_began() -> None:
    async def before(life: Life, seen: Seen) -> None:
        await subscribed(life, ("t", 1), ("$share/g/t", 1))

    async def scene(life: Life, seen: Seen) -> None:
        publisher = await life.wire()
        await publisher.connect("publisher")
        for payload in (b"1", b"2"):
            await publisher.publish("t", payload, qos=1)
            seen[payload.decode()] = payload

    async def afterwards(life: Life, seen: Seen) -> None:
        got = payloads(await everything(life))
        assert all(got.count(payload) == 2 for payload in seen.values())  # by either subscription

    await at_each_commit(scene, afterwards, before)


async def test_puback_for_a_client_that_does_not_acknowledge() -> None:
    async def scene(life: Life, seen: Seen) -> None:
        subscriber = await subscribed(life, ("t", 1))
        publisher = await life.wire()
        await publisher.connect("publisher")
        for payload in (b"1", b"2"):
            await publisher.publish("t", payload, qos=1)
            seen[payload.decode()] = await subscriber.receive()

    async def afterwards(life: Life, seen: Seen) -> None:
        again = {packet.payload: (packet.packet_id, packet.dup) for packet in await everything(life)}
        for packet in seen.values():
            assert again[packet.payload] == (packet.packet_id, True)

    await at_each_commit(scene, afterwards)


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

    await at_each_commit(scene, afterwards)


async def test_nobody_waits_for_what_a_subscriber_acknowledges() -> None:
    disk = Disk()
    async with disk.broker(session={"max_inflight": 1}) as life:
        subscriber = await subscribed(life, ("t", 1))
        life.fill()
        for number in range(5):
            life.node.publish("t", b"%d" % number, qos=1)
        for number in range(5):
            await subscriber.take_publish("t", b"%d" % number, qos=1)


# PUBREC and PUBCOMP to a publisher with a durable session


async def exchange(life: Life, seen: Seen) -> None:
    await (await subscribed(life, ("t", 2))).abort()
    seen["subscribed"] = True
    publisher, _ = await life.stay("publisher")
    await publisher.send(raw.publish("t", b"once", qos=2, packet_id=5))
    await publisher.expect_type(raw.PUBREC)
    seen["PUBREC"] = True
    await publisher.send(raw.ack(raw.PUBREL, 5))
    await publisher.expect_type(raw.PUBCOMP)
    seen["PUBCOMP"] = True


async def test_pubrec_and_pubcomp() -> None:
    async def afterwards(life: Life, seen: Seen) -> None:
        if "subscribed" not in seen:
            return
        publisher, present = await life.stay("publisher")
        assert present or "PUBREC" not in seen
        if "PUBREC" not in seen:
            await publisher.send(raw.publish("t", b"once", qos=2, packet_id=5, dup=True))
            await publisher.expect_type(raw.PUBREC)
        await publisher.send(raw.ack(raw.PUBREL, 5))
        assert (await publisher.expect_type(raw.PUBCOMP)).reason == 0
        assert payloads(await everything(life)) == [b"once"]

    await at_each_commit(exchange, afterwards)


async def test_a_released_message_goes_from_its_publisher_to_its_receivers_in_one_commit() -> None:
    async def afterwards(life: Life, seen: Seen) -> None:
        if "PUBREC" in seen:
            publisher = life.node.sessions.get("publisher")
            assert publisher is not None
            came = payloads(await everything(life))
            assert len(publisher.session.awaiting_rel) + len(came) == 1
            assert came or "PUBCOMP" not in seen

    await at_each_commit(exchange, afterwards)


# QoS 2 PUBLISH to a durable session, PUBREL to it, and its client's PUBCOMP


async def test_a_qos_2_publish_comes_again_with_its_packet_id_and_a_pubrel_in_its_place() -> None:
    async def scene(life: Life, seen: Seen) -> None:
        subscriber = await subscribed(life, ("t", 2))
        for payload in (b"1", b"2"):
            life.node.publish("t", payload, qos=2)
            seen[f"PUBLISH {payload!r}"] = await subscriber.receive()
        await subscriber.send(raw.ack(raw.PUBREC, 1))
        assert (await subscriber.expect_type(raw.PUBREL)).packet_id == 1
        seen["PUBREL"] = True
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
        assert 1 in {*repeated, *released} or "PUBREL" in seen or not sent
        if "PUBREL" in seen:
            assert 1 not in repeated
        if "PUBCOMP is stored" in seen:
            assert not released

    await at_each_commit(scene, afterwards)


async def test_a_new_message_does_not_get_a_packet_id_that_the_client_knows() -> None:
    async def scene(life: Life, seen: Seen) -> None:
        subscriber = await subscribed(life, ("t", 2))
        life.node.publish("t", b"old", qos=2)
        seen["old"] = await subscriber.receive()

    async def afterwards(life: Life, seen: Seen) -> None:
        if "old" in seen:
            life.node.publish("t", b"new", qos=2)
            old, new = await everything(life)
            assert (old.packet_id, old.payload) == (seen["old"].packet_id, b"old")
            assert new.packet_id != old.packet_id

    await at_each_commit(scene, afterwards)


# SUBACK, UNSUBACK, retained messages


async def test_suback_and_unsuback() -> None:
    async def scene(life: Life, seen: Seen) -> None:
        subscriber = await subscribed(life, ("t", 1), ("u", 2))
        seen["SUBACK"] = True
        await subscriber.send(raw.unsubscribe(2, "t"))
        seen["UNSUBSCRIBE"] = True
        await subscriber.expect_type(raw.UNSUBACK)
        seen["UNSUBACK"] = True

    async def afterwards(life: Life, seen: Seen) -> None:
        session = life.node.sessions.get("subscriber")
        filters = set[str]() if session is None else {*session.session.subscriptions}
        assert "u" in filters or "SUBACK" not in seen
        assert "t" in filters or "SUBACK" not in seen or "UNSUBSCRIBE" in seen
        assert "t" not in filters or "UNSUBACK" not in seen

    await at_each_commit(scene, afterwards)


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_retained_message(qos: int) -> None:
    async def scene(life: Life, seen: Seen) -> None:
        publisher = await life.wire()
        await publisher.connect("publisher")
        for number, payload in enumerate((b"first", b"second", b"")):
            properties = raw.user_property("number", str(number)) if payload else b""
            await publisher.publish("t", payload, qos=qos, retain=True, properties=properties)
            seen["number"] = number

    async def afterwards(life: Life, seen: Seen) -> None:
        kept = {each.message.payload: each.message for each in life.node.retained}
        done: int = seen.get("number", -1) + 1
        payload = (None, b"first", b"second", b"")[done]
        later = [b"first", b"second", b""][done:]
        if payload and not later:
            assert payload in kept
        assert kept.keys() <= {payload, *later}
        assert kept or not payload or b"" in later
        assert [message.publisher for message in kept.values()] == ["publisher"] * len(kept)
        numbers = {b"first": "0", b"second": "1"}
        for kept_payload, message in kept.items():
            assert list(message.properties.get("user_property", ())) == [("number", numbers[kept_payload])]

    await at_each_commit(scene, afterwards)


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

    await at_each_commit(scene, afterwards, before, session={"max_inflight": 2})
