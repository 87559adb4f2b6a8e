"""What is published at one shard comes to the sessions of all."""

import pytest

from tests.broker.shards.house import house
from tests.conformance import raw

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
