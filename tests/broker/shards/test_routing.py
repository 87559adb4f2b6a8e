"""What is published at one shard comes to the sessions of all."""

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from tests.broker.shards.house import house
from tests.broker.shards.routed import CALENDAR, Routes, Stream, burst
from tests.conformance import raw
from trunkline.broker.links.frames import LinkRoute, Said
from trunkline.broker.shards import routing
from trunkline.broker.shards.bursts import Forwarded, pieces
from trunkline.broker.shards.outbox import Unsent
from trunkline.broker.shards.stream_refusals import REFUSED
from trunkline.broker.shards.versions import STEP
from trunkline.mqtt.message import Message

pytestmark = pytest.mark.trio


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_each_subscriber_gets_it_once(qos: int, memory: bool) -> None:
    async with house(3, memory=memory) as shards:
        readers = [await shards.client(number % 3, f"r{number}") for number in range(6)]
        for reader in readers:
            await reader.subscribe(("a/+", qos))
        publisher = await shards.client(0, "p")
        for payload in (b"1", b"2", b"3"):
            await publisher.publish("a/b", payload, qos=qos)
            for reader in readers:
                await reader.take_publish("a/b", payload, qos=qos)
        for reader in readers:
            await reader.expect_nothing()


@pytest.mark.parametrize("memory", [True, False])
async def test_what_nobody_wants_goes_nowhere(memory: bool) -> None:
    async with house(2, memory=memory) as shards:
        publisher = await shards.client(0, "p")
        reader = await shards.client(1, "r")
        await reader.subscribe(("a", 0))
        await publisher.publish("a", b"x", qos=1)
        await reader.take_publish("a", b"x")
        pubsub = shards.lives[0].node.services.pubsub
        number = pubsub.peers[1].link._outgoing.number
        await publisher.publish("b", b"x", qos=1)
        assert pubsub.peers[1].link._outgoing.number == number


async def test_a_message_is_acknowledged_when_all_have_stored_it() -> None:
    async with house(3) as shards:
        for number in range(3):
            away = await shards.stay(number, f"r{number}")
            await away.subscribe(("a", 1))
            await away.disconnect()
        publisher = await shards.client(0, "p")
        await publisher.publish("a", b"x", qos=1)
        for number in range(3):
            await shards.end(number)
        await shards.begin_all(0, 1, 2)
        for number in range(3):
            back = await shards.stay(number, f"r{number}")
            await back.take_publish("a", b"x", qos=1)


async def test_retained_messages_are_found_at_each_shard() -> None:
    async with house(3) as shards:
        publisher = await shards.client(0, "p")
        await publisher.publish("a", b"x", qos=1, retain=True)
        for number in range(3):
            reader = await shards.client(number, f"r{number}")
            await reader.subscribe(("#", 0))
            await reader.take_publish("a", b"x")
            await reader.expect_nothing()


async def test_one_member_of_a_group_gets_it() -> None:
    async with house(3) as shards:
        readers = [await shards.client(number, f"r{number}") for number in (0, 1, 2)]
        for reader in readers:
            await reader.subscribe(("$share/g/a", 1))
        publisher = await shards.client(0, "p")
        for number in range(9):
            await publisher.publish("a", str(number).encode(), qos=1)
        for reader in readers:
            for _ in range(3):
                packet = await reader.receive()
                await reader.acknowledge(packet)
            await reader.expect_nothing()


async def test_a_shard_that_is_down_holds_nobody_up_and_loses_nothing() -> None:
    async with house(3) as shards:
        for number in (1, 2):
            away = await shards.stay(number, f"r{number}")
            await away.subscribe(("a", 1))
            await away.disconnect()
        await shards.end(1)
        publisher = await shards.client(0, "p")
        await publisher.publish("a", b"x", qos=1)
        await publisher.publish("a", b"y", qos=1, retain=True)
        await shards.end(0)
        await shards.begin_all(0, 1)
        for number in (1, 2):
            back = await shards.stay(number, f"r{number}")
            await back.take_publish("a", b"x", qos=1)
            await back.take_publish("a", b"y", qos=1)
            await back.expect_nothing()
            new = await shards.client(number, f"n{number}")
            await new.subscribe(("a", 0))
            await new.take_publish("a", b"y")


async def test_a_link_that_breaks_while_a_publisher_waits() -> None:
    async with house(2) as shards:
        away = await shards.stay(1, "r")
        await away.subscribe(("a", 1))
        await away.disconnect()
        shards.links.between(0, 1).stall()
        publisher = await shards.client(0, "p")
        await publisher.send(raw.publish("a", b"x", qos=1, packet_id=1))
        await publisher.expect_nothing()
        await shards.end(1)
        await publisher.expect(raw.ack(raw.PUBACK, 1))
        await shards.end(0)
        await shards.begin_all(0, 1)
        back = await shards.stay(1, "r")
        await back.take_publish("a", b"x", qos=1)
        await back.expect_nothing()


async def test_what_is_released_comes_once_whatever_ends_then() -> None:
    async with house(2) as shards:
        away = await shards.stay(1, "r")
        await away.subscribe("a")
        await away.disconnect()
        publisher = await shards.stay(0, "p")
        await publisher.send(raw.publish("a", b"x", qos=2, packet_id=1))
        await publisher.expect(raw.ack(raw.PUBREC, 1))
        shards.links.between(0, 1).stall()
        await publisher.send(raw.ack(raw.PUBREL, 1))
        await publisher.expect(raw.ack(raw.PUBCOMP, 1))
        await shards.end(0)
        await shards.begin(0)
        publisher = await shards.stay(0, "p")
        await publisher.send(raw.ack(raw.PUBREL, 1))
        await publisher.expect(raw.ack(raw.PUBCOMP, 1))
        back = await shards.stay(1, "r")
        await back.take_publish("a", b"x", qos=2)
        await back.expect_nothing()
        await back.disconnect()
        await shards.end(0)
        await shards.begin(0)
        await shards.end(1)
        await shards.begin(1)
        back = await shards.stay(1, "r")
        await back.expect_nothing()


async def test_the_newest_is_kept_everywhere_whoever_published_it() -> None:
    async with house(3) as shards:
        publishers = [await shards.client(number, f"p{number}") for number in range(3)]
        for turn in range(3):
            for number, publisher in enumerate(publishers):
                await publisher.publish("a", f"{turn} {number}".encode(), qos=1, retain=True)
        await publishers[1].publish("b", b"x", qos=1, retain=True)
        await publishers[2].publish("b", b"", qos=1, retain=True)
        for number in range(3):
            reader = await shards.client(number, f"r{number}")
            await reader.subscribe(("#", 0))
            await reader.take_publish("a", b"2 2")
            await reader.expect_nothing()


async def test_a_group_is_not_given_a_second_share_where_somebody_else_reads_it_too() -> None:
    async with house(2) as shards:
        member, reader = await shards.client(1, "m"), await shards.client(1, "r")
        await member.subscribe(("$share/g/a", 1))
        await reader.subscribe(("a", 1))
        publisher = await shards.client(0, "p")
        await publisher.publish("a", b"x", qos=1)
        await reader.take_publish("a", b"x", qos=1)
        await member.take_publish("a", b"x", qos=1)
        await member.expect_nothing()


@pytest.mark.parametrize("retain", [False, True])
async def test_messages_that_leave_together_are_routed_each_by_its_topic(retain: bool) -> None:
    async with house(2) as shards:
        readers = [await shards.client(1, topic) for topic in ("a", "b")]
        for reader, topic in zip(readers, ("a", "b"), strict=True):
            await reader.subscribe((topic, 1))
        await (wide := await shards.client(1, "w")).subscribe(("+", 1))
        publisher = await shards.client(0, "p")
        topics = ("a", "b", "b", "a")
        await publisher.send(
            *[raw.publish(topic, b"x", qos=1, packet_id=1 + at, retain=retain) for at, topic in enumerate(topics)]
        )
        for topic in topics:
            await wide.take_publish(topic, b"x", qos=1)
        for reader, topic in zip(readers, ("a", "b"), strict=True):
            for _ in range(2):
                await reader.take_publish(topic, b"x", qos=1)
            await reader.expect_nothing()
        for number in range(2):
            new = await shards.client(number, f"n{number}")
            await new.subscribe(("+", 0))
            for topic in ("a", "b") if retain else ():
                await new.take_publish(topic, b"x")
            await new.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_long_row_of_messages_goes_in_pieces(qos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "CREDIT", 2 * Message("a", b"0").weight)
    async with house(2) as shards:
        reader = await shards.client(1, "r")
        await reader.subscribe(("a", 1))
        publisher = await shards.client(0, "p")
        await publisher.publish("a", b"0", qos=qos)
        await reader.take_publish("a", b"0", qos=qos)
        sent: list[int] = []

        def seen(forwarded: Forwarded, *how: int) -> Sequence[Forwarded]:
            found = pieces(forwarded, *how)
            sent.extend([each.publication.count for each in found])
            return found

        monkeypatch.setattr(routing, "pieces", seen)
        payloads = [b"%d" % number for number in range(1, 6)]
        await publisher.send(
            *[raw.publish("a", each, qos=qos, packet_id=int(each) if qos else None) for each in payloads]
        )
        for each in payloads:
            await reader.take_publish("a", each, qos=qos)
        await reader.expect_nothing()
    assert sent == [2, 2, 1]


async def test_a_share_comes_back_where_nobody_is_left_for_it() -> None:
    """The publisher's shard has members, too, and is asked again."""
    async with house(2) as shards:
        here, there = await shards.client(0, "here"), await shards.client(1, "there")
        for member in (here, there):
            await member.subscribe(("$share/g/a", 1))
        publisher = await shards.client(0, "p")
        shards.links.between(0, 1).stall()
        await there.disconnect()
        for number in range(4):
            await publisher.send(raw.publish("a", b"%d" % number, qos=1, packet_id=1 + number))
        await publisher.ping()
        shards.links.between(0, 1).go_on()
        got = set[bytes]()
        for _ in range(4):
            packet = await here.receive()
            await here.acknowledge(packet)
            got.add(packet.payload)
        assert got == {b"0", b"1", b"2", b"3"}


async def test_members_of_a_shard_that_is_down_are_offline() -> None:
    async with house(2) as shards:
        here, there = await shards.client(0, "here"), await shards.stay(1, "there")
        for member in (here, there):
            await member.subscribe(("$share/g/a", 1))
        publisher = await shards.client(0, "p")
        await shards.end(1)
        for number in range(4):
            await publisher.publish("a", b"%d" % number, qos=1)
            await here.take_publish("a", b"%d" % number, qos=1)


async def test_what_its_publisher_does_not_repeat_leaves_when_it_is_stored() -> None:
    """Else the next life of the shard would send it again under another number."""
    async with house(2) as shards:
        reader = await shards.stay(1, "r")
        await reader.subscribe("a")
        publisher = await shards.stay(0, "p")
        await publisher.send(raw.publish("a", b"x", qos=2, packet_id=1))
        await publisher.expect(raw.ack(raw.PUBREC, 1))
        shards.lives[0].cut_in(0, applied=False)
        await publisher.send(raw.ack(raw.PUBREL, 1))
        await shards.lives[0].cut_off.wait()
        await reader.expect_nothing()
        await shards.end(0)
        await shards.begin(0)
        publisher = await shards.stay(0, "p")
        await publisher.send(raw.ack(raw.PUBREL, 1))
        await publisher.expect(raw.ack(raw.PUBCOMP, 1))
        await reader.take_publish("a", b"x", qos=2)
        await reader.expect_nothing()


async def test_what_is_made_safe_is_not_sent_again_at_qos_0() -> None:
    async with house(2) as shards:
        reader = await shards.stay(1, "r")
        await reader.subscribe(("a", 1))
        publisher = await shards.client(0, "p")
        at_0, at_1 = raw.publish("a", b"0"), raw.publish("a", b"1", qos=1, packet_id=1)
        shards.links.part(0, 1)
        await publisher.send(at_1 + at_0)
        await publisher.expect(raw.ack(raw.PUBACK, 1))
        await shards.end(0)
        shards.links.mend(0, 1)
        await shards.begin(0)
        await reader.take_publish("a", b"1", qos=1)
        await reader.expect_nothing()


async def test_a_shard_gets_back_what_it_had_not_stored() -> None:
    async with house(2) as shards:
        publisher = await shards.client(0, "p")
        await publisher.publish("a", b"1", qos=1, retain=True)
        await publisher.publish("b", b"1", qos=1, retain=True)
        shards.lives[0].cut()  # nothing is stored any more
        await publisher.publish("a", b"2", retain=True)
        await publisher.publish("b", b"", retain=True)
        reader = await shards.client(1, "r")
        await reader.subscribe(("#", 0))
        while (packet := await reader.receive()).payload != b"2":
            pass
        assert packet.topic == "a"
        await shards.end(0)
        await shards.begin(0)
        back = await shards.client(0, "back")
        await back.subscribe(("#", 0))
        await back.take_publish("a", b"2")
        await back.expect_nothing()


async def test_shares_with_gaps_between_them_are_found_after_a_restart() -> None:
    async with house(2) as shards:
        members = [await shards.stay(1, f"m{number}") for number in range(2)]
        for member in members:
            await member.subscribe(("$share/g/a", 1))
        for member in members:
            await member.disconnect()
        publisher = await shards.client(0, "p")
        await publisher.send(*[raw.publish("a", b"%d" % at, qos=1, packet_id=1 + at) for at in range(6)])
        await publisher.expect(*[raw.ack(raw.PUBACK, 1 + at) for at in range(6)])
        await shards.end(1)
        await shards.begin(1)
        got = set[bytes]()
        for number in range(2):
            member = await shards.stay(1, f"m{number}")
            for _ in range(3):
                packet = await member.receive()
                await member.acknowledge(packet)
                got.add(packet.payload)
        assert len(got) == 6


# One shard by itself


@pytest.mark.parametrize("count", [2, 4])
async def test_of_a_burst_that_a_stream_has_no_room_for_it_takes_what_it_can(count: int) -> None:
    shard, stream, refused = Routes(), Stream(count // 2), list[tuple[Message, str]]()
    member = shard.subscribe("a")
    shard.pubsub.router.add_sink("a", stream)
    shard.pubsub.on_refused = lambda message, why: refused.append((message, why))
    shard.take(burst("a" * count, 0x32))
    ids = [message.guid for message in stream.messages]
    assert len(ids) == count // 2
    assert [message.guid for message, _ in refused] == [*range(ids[-1] + 1, ids[0] + count)]
    assert {why for _, why in refused} == {"full"}
    assert shard.others[0].said == [
        Said(REFUSED, 0, (message.guid.to_bytes(16, "big"), "full")) for message, _ in refused
    ]
    assert [message.guid for message in member.messages] == [*range(ids[0], ids[0] + count)]
    shard.take(Message("nobody", b"x", 1))
    assert (len(refused), len(shard.others[0].said), len(member.messages)) == (count // 2, count // 2, count)


async def test_what_durable_sessions_get_has_come_when_it_is_stored() -> None:
    shard = Routes()
    shard.subscribe("fleeting")
    shard.subscribe("durable", durable=True)
    assert shard.committer is not None
    stored = [shard.committer.after_commit]
    assert shard.take(Message("fleeting", b"x", 1)) == []
    assert shard.take(Message("durable", b"x", 0)) == []
    assert shard.take(Message("durable", b"x", 1)) == stored
    assert shard.take(Message("nobody", b"x", 0, retain=True), version=256) == stored
    assert shard.take(Message("nobody", b"x", 0, retain=True), version=512, is_silent=True) == stored
    assert shard.take(burst("ab", 0x32)) == []
    shard.subscribe("a", durable=True)
    assert shard.take(burst("ab", 0x32)) == stored


async def test_what_the_member_of_a_group_gets_has_come_when_it_is_stored() -> None:
    shard = Routes()
    assert shard.committer is not None
    stored = [shard.committer.after_commit]
    shard.subscribe("$share/g/a")
    assert shard.take(Message("a", b"x", 1), share="$share/g/a") == []
    durable = shard.subscribe("$share/h/a", durable=True)
    assert shard.take(Message("a", b"x", 0), share="$share/h/a") == []
    message = Message("a", b"y", 1)
    assert shard.take(message, share="$share/h/a") == stored
    assert durable.messages[1:] == [message]
    assert message.stored is not None
    upgrading = Routes(session={"upgrade_qos": True})
    upgrading.subscribe("$share/h/a", durable=True)
    assert len(upgrading.take(Message("a", b"x", 0), share="$share/h/a")) == 1


async def test_in_memory_a_publisher_waits_for_the_other_shards() -> None:
    shard = Routes(durable=False)
    member = shard.subscribe("a")
    assert shard.take(Message("a", b"x", 1, retain=True), version=256) == []
    assert len(member.messages) == 1
    shard.want(shard.others[0], "a")
    message = Message("a", b"y", 2)
    shard.pubsub.publish(message, 0.0)
    wait = shard.pubsub.waits(message, None)
    assert wait is not None
    told: list[str] = []
    wait(lambda: told.append("there"))
    assert shard.others[0].kept == []
    assert told == []
    shard.others[0].acknowledge()
    assert told == ["there"]


@pytest.mark.parametrize("qos", [1, 2])
async def test_in_memory_an_answer_waits_until_the_other_shards_have_the_message(qos: int) -> None:
    async with house(2, memory=True) as shards:
        reader = await shards.client(1, "r")
        await reader.subscribe(("a", qos))
        publisher = await shards.client(0, "p")
        link = shards.links.between(0, 1)
        link.stall()
        await publisher.send(raw.publish("a", b"x", qos=qos, packet_id=1))
        if qos == 2:
            await publisher.expect(raw.ack(raw.PUBREC, 1))
            await publisher.send(raw.ack(raw.PUBREL, 1))
        await publisher.expect_nothing()
        link.go_on()
        await publisher.expect(raw.ack(raw.PUBACK if qos == 1 else raw.PUBCOMP, 1))
        await reader.take_publish("a", b"x", qos=qos)


async def test_in_memory_who_has_too_much_on_its_way_to_other_shards_is_not_read_from() -> None:
    async with house(2, memory=True, mqtt={"max_unacknowledged_bytes": 10_000}) as shards:
        reader = await shards.client(1, "r")
        await reader.subscribe(("a", 0))
        publisher = await shards.client(0, "p")
        listeners = shards.lives[0].node.listeners
        link = shards.links.between(0, 1)
        for _ in range(2):
            link.stall()
            for packet_id, paused in ((1, 0), (2, 1)):
                await publisher.send(raw.publish("a", bytes(8000), qos=1, packet_id=packet_id))
                await wait_all_tasks_blocked()
                assert sum(each.is_paused for each in listeners.connections) == paused
            link.go_on()
            for packet_id in (1, 2):
                await publisher.expect(raw.ack(raw.PUBACK, packet_id))
            assert not any(each.is_paused for each in listeners.connections)


async def test_a_retained_message_weighs_until_the_other_shards_have_it_at_qos_0_too() -> None:
    shard = Routes(1)
    shard.want(shard.others[0], "a")
    for retain in (False, True):
        message = Message("a", b"x", retain=retain)
        shard.pubsub.publish(message, 0.0)
        told: list[str] = []
        wait = shard.pubsub.waits(message, None)
        assert (wait is not None) is retain
        if wait is not None:
            wait(lambda told=told: told.append("safe"))  # type: ignore[misc]
        shard.turns.end()
        assert told == []
        shard.others[0].acknowledge()
        assert bool(told) is retain


@pytest.mark.parametrize("first", ["here", "there"])
async def test_a_publisher_waits_for_its_own_shard_and_for_the_others(first: str) -> None:
    shard = Routes(1)
    shard.want(shard.others[0], "a")
    message = Message("a", b"x", 1)
    shard.pubsub.publish(message, 0.0)
    here = list[Any]()
    told: list[str] = []
    wait = shard.pubsub.waits(message, here.append)
    assert wait is not None
    wait(lambda: told.append("told"))
    (stored,) = here
    steps = [stored, shard.others[0].acknowledge]
    for step in steps if first == "here" else reversed(steps):
        assert told == []
        step()
    assert told == ["told"]


async def test_a_number_is_taken_once() -> None:
    shard = Routes()
    member = shard.subscribe("a")
    for _ in range(2):
        shard.take(Message("a", b"x", 2), number=7)
    assert len(member.messages) == 1


@pytest.mark.parametrize(("qos", "is_kept"), [(0, False), (1, True)])
async def test_a_share_goes_on_to_another_shard_when_nobody_is_online(qos: int, is_kept: bool) -> None:
    shard = Routes()
    first, second = shard.others
    away = shard.subscribe("$share/g/a", online=False, durable=True)
    for other in shard.others:
        shard.want(other, "$share/g/a", LinkRoute(2, online=1))
    waits = shard.take(Message("a", b"x", qos), share="$share/g/a", tried=(1,))
    assert away.mail == []
    assert first.got == [], "it was tried"
    assert [each[1:3] for each in second.got] == [("$share/g/a", (1, 0))]
    assert len(second.kept) == is_kept
    assert len(waits) == 1
    shard.want(second, "$share/g/a", LinkRoute(2, offline=1))
    shard.take(Message("a", b"x", qos), share="$share/g/a", tried=(0, 1, 2))
    assert first.got == []
    assert len(away.messages) == 1, "nobody is online where it was tried"
    shard.pubsub.router.unsubscribe(away.subscriber, "$share/g/a")
    shard.take(Message("a", b"x", qos), share="$share/g/a", tried=(0, 1, 2))
    assert [each.tried for each in first.got] == [(1, 2, 0)], "it may have somebody again"


async def test_what_a_member_has_not_taken_goes_to_somebody_who_is_online() -> None:
    shard = Routes()
    other = shard.others[0]
    leaving, here = (shard.subscribe("$share/g/a", durable=True) for _ in range(2))
    group = shard.pubsub.router.group("$share/g/a")
    assert group is not None
    shard.want(other, "$share/g/a", LinkRoute(2, online=1))
    assert shard.pubsub.hand_on(Message("a", b"1", 1), group, leaving.subscriber)
    assert len(here.messages) == 1
    assert other.got == []
    here.subscriber.online = leaving.subscriber.online = False
    assert shard.pubsub.hand_on(Message("a", b"2", 1), group, leaving.subscriber)
    assert len(here.messages) == 1
    assert len(other.kept) == 1, "nobody sends it again"
    shard.want(other, "$share/g/a", LinkRoute(2, offline=1))
    assert shard.pubsub.hand_on(Message("a", b"3", 1), group, leaving.subscriber)
    assert len(here.messages) == 2
    assert len(other.got) == 1
    shard.pubsub.router.unsubscribe(here.subscriber, "$share/g/a")
    assert shard.pubsub.hand_on(Message("a", b"4", 1), group, leaving.subscriber)
    assert len(other.got) == 2
    shard.want(other, "$share/g/a", None)
    assert not shard.pubsub.hand_on(Message("a", b"5", 1), group, leaving.subscriber)
    assert shard.pubsub._sending == [], "nobody waits for these"


async def test_few_groups_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "MAX_PICKERS", 3)
    shard = Routes()
    for number in range(9):
        filter = f"$share/{number}/a"
        shard.want(shard.others[0], filter, LinkRoute(2, online=1))
        shard.pubsub.publish(Message("a", b"x"), 0.0)
        shard.want(shard.others[0], filter, None)
    assert list(shard.pubsub._pickers) == [f"$share/{number}/a" for number in (6, 7, 8)]
    assert len(shard.others[0].got) == 9


async def test_a_publisher_learns_where_it_goes_to_somebody_and_waits_for_those() -> None:
    shard = Routes(3)
    one, two, three = shard.others
    shard.want(one, "a")
    shard.want(one, "$share/g/a", LinkRoute(2, online=1))
    shard.want(two, "a")
    assert shard.pubsub.publish(Message("nobody", b"x"), 0.0) == 0
    message = Message("a", b"x", 1)
    assert shard.pubsub.publish(message, 0.0) == 3
    assert [len(other.got) for other in shard.others] == [2, 1, 0]
    wait, told = shard.pubsub.waits(message, None), list[str]()
    assert wait is not None
    wait(lambda: told.append("safe"))
    one.acknowledge()
    assert told == []
    two.acknowledge()
    assert told == ["safe"]
    assert three.waiting == []
    assert shard.pubsub.waits(Message("a", b"x", 1), None) is None, "it was not that one"
    assert shard.pubsub.waits(Message("a", b"x", 1), wait) is wait
    at_0 = Message("a", b"x")
    shard.pubsub.publish(at_0, 0.0)
    assert shard.pubsub.waits(at_0, None) is None


async def test_what_is_retained_has_the_same_version_everywhere() -> None:
    shard = Routes()
    shard.pubsub.publish(burst("aba"), 5.0)
    first = int((CALENDAR + 5.0) * 1_000_000) * STEP
    for other in shard.others:
        assert [each.version for each in other.got] == [first]
    assert shard.unsent.versions == {"a": first + 2 * STEP, "b": first + STEP}
    assert shard.retained == shard.unsent.versions
    shard.others[0].acknowledge()
    assert len(shard.unsent.versions) == 2
    shard.others[1].acknowledge()
    assert shard.unsent.versions == {}
    there = Routes()
    there.subscribe("a")  # so that the burst is in parts there
    there.take(burst("aba"), version=first)
    assert there.retained == shard.retained


async def test_a_hook_may_publish_between_two_messages_that_are_retained() -> None:
    shard = Routes()
    shard.subscribe("$share/g/+")
    shard.hooks.add("message.routed", lambda publication, _: nested(publication))

    def nested(publication: Message) -> None:
        if publication.topic == "a":
            shard.pubsub.publish(Message("other", b"x", 1, retain=True), 5.0)

    shard.pubsub.publish(burst("ab"), 5.0)
    kept = shard.pubsub.retained.kept("b")
    assert kept is not None
    [sent] = [each for each in shard.others[0].got if each.publication.count == 2]
    assert kept.version == sent.version + STEP


async def test_what_the_broker_says_of_itself_is_retained_here_alone() -> None:
    shard = Routes()
    shard.want(shard.others[0], "$SYS/#")
    shard.pubsub.publish(Message("$SYS/x", b"1", retain=True), 0.0)
    assert shard.pubsub.retained.kept("$SYS/x") is not None
    assert shard.others[0].got == []
    shard.pubsub.delete_retained(["$SYS/x"])
    assert shard.pubsub.retained.kept("$SYS/x") is None
    assert shard.others[0].got == []


async def test_what_an_operator_deletes_is_deleted_everywhere() -> None:
    shard = Routes()
    for topic in ("a", "b"):
        shard.pubsub.publish(Message(topic, b"x", retain=True), 0.0)
    before = [each.version for each in shard.others[0].got]
    shard.pubsub.delete_retained(iter(("a", "b")))
    assert not shard.pubsub.retained
    for other in shard.others:
        deleted = other.got[2:]
        assert [(each.publication.topic, each.is_silent) for each in deleted] == [("a", True), ("b", True)]
        assert all(each.publication.retain and not each.publication.messages[0].payload for each in deleted)
        assert [each.version > version for each, version in zip(deleted, before, strict=True)] == [True, True]
    there = Routes()
    reader = there.subscribe("a")
    there.take(Message("a", b"x", retain=True), version=before[0])
    there.take(*[each.publication for each in deleted[:1]], version=deleted[0].version, is_silent=True)
    assert not there.pubsub.retained
    assert len(reader.messages) == 1, "nobody gets the deletion"
    there.take(Message("a", b"x", retain=True), version=before[0])
    assert not there.pubsub.retained, "it is older than its deletion"


async def test_a_life_sends_what_the_one_before_had_not_sent() -> None:
    shard = Routes()
    for number, topic in enumerate(("a", "b")):
        shard.pubsub.retained.restore(Message(topic, b"x", 1, retain=True), inf, 0, 1000 + number)
    shard.subscribe("restored")
    shard.pubsub.begin(Unsent([(2, 5, b"burst"), (9, 6, b"gone")], {"a": 1000, "b": 999, "c": 500}))
    shard.turns.end()
    assert [other.told for other in shard.others] == [["restored"], ["restored"]]
    assert [other.resent for other in shard.others] == [[], [(5, b"burst")]]
    for other in shard.others:
        assert [(each.publication.topic, each.version, each.is_silent) for each in other.got] == [
            ("a", 1000, True),
            ("c", 500, True),
        ]
        kept, deleted = (each.publication.messages[0] for each in other.got)
        assert (kept.payload, deleted.payload) == (b"x", b"")
        assert (kept.retain, deleted.retain) == (True, True)
    assert shard.unsent.versions == {"a": 1000, "c": 500}
    assert not shard.pubsub.are_known.is_set()
    for other in shard.others:
        assert shard.pubsub.is_wanted("anything"), "who knows what the other shard wants"
        shard.want(other, "t")
    assert shard.pubsub.are_known.is_set()
    assert not shard.pubsub.is_wanted("anything")
    assert shard.pubsub.is_wanted("t")


async def test_the_newest_of_what_a_shard_has_missed() -> None:
    shard = Routes()
    one, other = shard.others
    shard.pubsub.publish(burst("ab"), 0.0)
    shard.pubsub.delete_retained("a")
    shard.turns.end()
    for each in shard.others:
        each.acknowledge()
        each.got.clear()
    other.missed = {"b": False}
    shard.pubsub.send_newest(one, {"a": False, "b": True, "unknown": False})  # type: ignore[arg-type]
    assert [(each.publication.topic, each.publication.payload, each.is_silent) for each in one.got] == [  # type: ignore[union-attr]
        ("a", b"", True),
        ("b", b"x", True),
    ]
    assert [(each.publication.topic, each.publication.payload) for each in other.got] == [("a", b"")]  # type: ignore[union-attr]
    assert list(shard.unsent.versions) == ["a", "b"]
    shard.turns.end()
    for each in shard.others:
        each.acknowledge()
    assert list(shard.unsent.versions) == ["b"], "one shard does not have it yet"


async def test_what_another_shard_has_sent_is_not_sent_to_subscribers_again() -> None:
    shard = Routes()
    shard.take(Message("a", b"x", retain=True, publisher="p"), version=10**18 * STEP + 1)
    shard.pubsub.send_newest(shard.others[1], {"a": False})  # type: ignore[arg-type]
    assert [(each.publication.topic, each.is_silent) for each in shard.others[1].got] == [("a", True)]


async def test_a_deletion_goes_to_shards_that_an_older_message_came_to_late() -> None:
    shard = Routes()
    shard.pubsub.publish(burst("a"), 0.0)
    shard.take(Message("a", b"", 1, retain=True, publisher="p"), version=10**15 * STEP + 1)
    shard.turns.end()
    for each in shard.others:
        each.got.clear()
        each.acknowledge()
    for each in shard.others:
        assert [(each.publication.messages[0].payload, each.version, each.is_silent) for each in each.got] == [
            (b"", 10**15 * STEP + 1, True)
        ]
        each.got.clear()
    shard.turns.end()
    for each in shard.others:
        each.acknowledge()
    assert [each.got for each in shard.others] == [[], []]
    assert shard.unsent.versions == {}


async def test_a_retained_message_at_qos_2_is_everywhere_before_its_publisher_is_told() -> None:
    shard = Routes()
    told: list[str] = []
    message = Message("a", b"x", 2, retain=True)
    shard.pubsub.publish(message, 0.0)
    wait = shard.pubsub.waits(message, None)
    assert wait is not None
    wait(lambda: told.append("told"))
    shard.turns.end()
    assert shard.others[0].kept
    for other in shard.others:
        assert told == []
        other.acknowledge()
    assert told == ["told"]


async def test_a_retained_message_at_qos_2_is_not_everywhere_before_it_has_left() -> None:
    shard = Routes()
    shard.pubsub.publish(Message("a", b"x", 2, retain=True), 0.0)
    for other in shard.others:
        other.acknowledge()
    assert list(shard.unsent.versions) == ["a"], "it leaves when it is stored"
    shard.turns.end()
    for other in shard.others:
        other.acknowledge()
    shard.turns.end()
    assert shard.unsent.versions == {}


async def test_qos_2_waits_for_a_shard_that_has_too_much() -> None:
    shard = Routes(1)
    other = shard.others[0]
    shard.want(other, "a")
    for has_too_much in (False, True):
        other.has_too_much = has_too_much
        publication = Message("a", b"x", qos=2, publisher="p")
        shard.pubsub.publish(publication, 0.0)
        wait = shard.pubsub.waits(publication, None)
        assert wait is not None
        told: list[str] = []
        wait(lambda told=told: told.append("safe"))  # type: ignore[misc]
        shard.turns.end()
        assert bool(told) is not has_too_much
        other.acknowledge()
        assert told == ["safe"]


async def test_a_shard_that_begins_anew_gets_what_it_had_retained_last() -> None:
    shard = Routes()
    reader = shard.subscribe("a")
    shard.take(Message("a", b"x", 1, retain=True), version=7 * STEP + 1)
    shard.pubsub.begins_anew(shard.others[1])  # type: ignore[arg-type]
    assert shard.others[1].got == []
    shard.pubsub.begins_anew(shard.others[0])  # type: ignore[arg-type]
    [back] = shard.others[0].got
    assert (back.publication.topic, back.version, back.is_silent) == ("a", 7 * STEP + 1, True)
    assert len(reader.messages) == 1


async def test_what_a_shard_had_forgotten_itself_goes_to_all_others() -> None:
    """It ended before it had stored what it retained last, and one of the others had got it."""
    shard = Routes()
    own = 7 * STEP + shard.pubsub.number
    for version, count in ((own, 1), (own, 1), (own - STEP, 1)):
        shard.take(Message("a", b"x", retain=True), version=version, is_silent=True)
        for each in shard.others:
            assert [(got.publication.topic, got.version, got.is_silent) for got in each.got] == [
                ("a", own, True)
            ] * count
    assert shard.unsent.versions == {"a": own}
    for each in shard.others:
        each.got.clear()
    shard.take(Message("b", b"x", retain=True), version=7 * STEP + 1, is_silent=True)
    assert [each.got for each in shard.others] == [[], []], "another one cares for that"


async def test_a_will_is_kept_and_what_is_published_after_it_is_not() -> None:
    shard = Routes()
    other, gone = shard.others[0], shard.subscribe("elsewhere")
    shard.want(other, "a")
    for qos in (0, 1):
        shard.pubsub.publish_will(Message("a", b"will", qos), 0.0, gone.subscriber, None)  # type: ignore[arg-type]
    shard.pubsub.publish(Message("a", b"x", 1), 0.0)
    assert len(other.got) == 3
    assert [(each.publication.messages[0].payload, each.publication.qos) for each in other.kept] == [(b"will", 1)]


async def test_others_are_told_who_of_a_group_has_come_or_gone() -> None:
    shard = Routes()
    shard.subscribe("$share/g/a")
    shard.subscribe("b")
    shard.pubsub.presence_changed(["$share/g/a", "b"])
    shard.turns.end()
    assert [other.told for other in shard.others] == [["$share/g/a"], ["$share/g/a"]]


async def test_members_of_a_shard_that_has_told_nothing_yet_get_their_share() -> None:
    async with house(3) as shards:
        for number in (1, 2):
            away = await shards.stay(number, f"r{number}")
            await away.subscribe((f"$share/g{number}/a", 1), ("b", 1))
            await away.disconnect()
        await shards.end(1)
        await shards.end(0)
        await shards.begin(0)
        publisher = await shards.client(0, "p")
        for topic in "ab":
            await publisher.publish(topic, b"x", qos=1)
        await publisher.publish("a", b"y", qos=1, retain=True)
        await shards.begin(1)
        for number in (1, 2):
            back = await shards.stay(number, f"r{number}")
            for topic, payload in (("a", b"x"), ("b", b"x"), ("a", b"y")):
                await back.take_publish(topic, payload, qos=1)
            await back.expect_nothing()


async def test_who_is_behind_gets_what_a_member_gets_whose_group_was_not_known() -> None:
    async with house(2) as shards:
        for name, filter in (("reader", "+"), ("member", "$share/g/a")):
            away = await shards.stay(1, name)
            await away.subscribe((filter, 1))
            await away.disconnect()
        await shards.end(1)
        await shards.end(0)
        await shards.begin(0)
        publisher = await shards.client(0, "p")
        await publisher.publish("a", b"x", qos=1)
        await shards.begin(1)
        for name in ("reader", "member"):
            back = await shards.stay(1, name)
            await back.take_publish("a", b"x", qos=1)
            await back.expect_nothing()
