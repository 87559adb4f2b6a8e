"""Messages that follow each other and are alike are handled together, and nobody can tell."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.broker.nats.speaking import nats_room
from tests.conformance import raw
from trunkline.broker.metrics import DropReason
from trunkline.broker.nats import publishing
from trunkline.broker.nats.dialogue import OPERATIONS_AT_ONCE
from trunkline.broker.nats.publishing import MOST_GATHERED
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import Deny, Withhold
from trunkline.mqtt.message import Message
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.reasons import Reason
from trunkline.streams import Discard, StreamConfig

NUMBER = 40


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages were handled together, each time."""
    counts: list[int] = []
    gather = publishing.gathered

    def noting(topic: str, payloads: Sequence[bytes]) -> PublishBatch:
        counts.append(len(payloads))
        return gather(topic, payloads)

    monkeypatch.setattr(publishing, "gathered", noting)
    return counts


def pub(payload: bytes, subject: bytes = b"a") -> list[bytes]:
    return [b"PUB %b %d" % (subject, len(payload)), payload]


def pubs(count: int = NUMBER, subject: bytes = b"a", *, longer: bool = False) -> list[bytes]:
    """The first one is published by itself: access rules have not decided about its topic."""
    return [line for number in range(count) for line in pub(b"%d" % number if longer else b"%03d" % number, subject)]


def msgs(sid: bytes, count: int = NUMBER, *, longer: bool = False) -> bytes:
    payloads = [b"%d" % number if longer else b"%03d" % number for number in range(count)]
    return b"".join([b"MSG a %b %d\r\n%b\r\n" % (sid, len(payload), payload) for payload in payloads])


@pytest.mark.parametrize("longer", [False, True])
async def test_all_get_them_in_order(longer: bool, gathered: list[int]) -> None:
    """By either protocol and each version of MQTT, at each QoS, online or not, several times or in a group."""
    async with nats_room(session={"store_qos0": True}) as here:
        speaker, other = await here.speaker(), await here.speaker(headers=False, no_responders=False)
        wires = [await here.wire("three", version=4), await here.wire("five")]
        for each in wires:
            await each.subscribe(("a", 1))
        away = await here.wire("away", clean=False, properties=raw.session_expiry(100))
        await away.subscribe(("+", 2))
        await away.abort()
        await other.say(b"SUB > 1", b"SUB a 22", b"SUB a g 3")
        assert await other.said() == b""
        await speaker.say(b"SUB a 1", *pubs(longer=longer))
        assert await speaker.said() == msgs(b"1", longer=longer)
        assert gathered == [NUMBER - 1]
        said = await other.said()
        for sid in (b"1", b"22", b"3"):
            lines = said.split(b"\r\n")[:-1]
            mine = [lines[at + 1] for at in range(0, len(lines), 2) if lines[at].split(b" ")[2] == sid]
            assert mine == [b"%d" % number if longer else b"%03d" % number for number in range(NUMBER)]
        back = await here.wire("away", clean=False, properties=raw.session_expiry(100))
        for wire in (*wires, back):
            for number in range(NUMBER):
                await wire.expect_publish("a", b"%d" % number if longer else b"%03d" % number)
        metrics = here.node.metrics
        assert (metrics.messages_in[0], metrics.messages_out[0]) == (NUMBER, 4 * NUMBER + 3 * NUMBER)


async def test_what_is_between_ends_a_burst(gathered: list[int]) -> None:
    """Other subjects, replies, headers, other operations; and those who are asked for stay in order."""
    async with nats_room() as here:
        speaker = await here.speaker()
        hpub = [b"HPUB a 12 13", b"NATS/1.0\r\n\r\nh"]
        await speaker.say(b"SUB > 1", *pub(b"1"), *pub(b"2", b"b"))
        assert await speaker.said() == b"MSG a 1 1\r\n1\r\nMSG b 1 1\r\n2\r\n"
        await speaker.say(
            *pub(b"1"), *pub(b"2"), *pub(b"3", b"b"), *pub(b"4"), b"PUB a r 1", b"5", *pub(b"6"), *pub(b"7"), *hpub
        )
        await speaker.say(*pub(b"8"), *pub(b"9"), b"UNSUB 1", *pub(b"no"), *pub(b"no"), b"SUB a 2", *pub(b"10"))
        assert await speaker.said() == (
            b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n2\r\nMSG b 1 1\r\n3\r\nMSG a 1 1\r\n4\r\nMSG a 1 r 1\r\n5\r\n"
            b"MSG a 1 1\r\n6\r\nMSG a 1 1\r\n7\r\nHMSG a 1 12 13\r\nNATS/1.0\r\n\r\nh\r\n"
            b"MSG a 1 1\r\n8\r\nMSG a 1 1\r\n9\r\nMSG a 2 2\r\n10\r\n"
        )
        assert gathered == [2, 2, 2, 2]


async def test_a_burst_is_bounded(gathered: list[int]) -> None:
    """In messages, which are those of a turn, and in what each may have."""
    async with nats_room() as here:
        speaker = await here.speaker()
        count = 3 * OPERATIONS_AT_ONCE
        await speaker.say(b"SUB a 1", *pubs(count))
        assert await speaker.said() == msgs(b"1", count)
        assert max(gathered) <= OPERATIONS_AT_ONCE
        assert sum(gathered) > count // 2
        del gathered[:]
        for size in (MOST_GATHERED, MOST_GATHERED + 1):
            await speaker.say(*pub(bytes(size)) * 3)
            assert await speaker.said() == b"MSG a 1 %d\r\n%b\r\n" % (size, bytes(size)) * 3
        assert gathered == [3]
        long = b"t" * 64
        await speaker.say(b"SUB %b 2" % long, *pubs(3, long))
        assert (await speaker.said()).count(b"MSG") == 3
        assert gathered == [3]


async def test_of_a_group_each_message_goes_to_one(gathered: list[int]) -> None:
    async with nats_room() as here:
        speaker, other = await here.speaker(), await here.speaker()
        await speaker.say(b"SUB a g 1", b"SUB a g 2")
        await speaker.said()
        await other.say(b"SUB a g 1")
        await other.said()
        await speaker.say(*pubs())
        said = [*(await speaker.said()).split(b"\r\n")[1::2], *(await other.said()).split(b"\r\n")[1::2]]
        assert sorted(said) == [b"%03d" % number for number in range(NUMBER)]
        assert gathered


async def test_a_subscription_that_ends_in_the_middle(gathered: list[int]) -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.say(b"SUB a 1", b"UNSUB 1 7", b"SUB a 2", *pubs())
        said = await speaker.said()
        assert said.count(b"MSG a 1 ") == 7
        assert said.count(b"MSG a 2 ") == NUMBER
        assert gathered == [NUMBER - 1]


async def test_nobody_hears_it(gathered: list[int]) -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.say(*pubs())
        assert await speaker.said() == b""
        assert here.node.metrics.dropped[DropReason.NO_SUBSCRIBERS] == NUMBER
        assert gathered == [NUMBER - 1]


@pytest.mark.parametrize("options", [{"verbose": True}, {"echo": False}, {"pedantic": True}])
async def test_clients_for_whom_each_counts(options: dict[str, Any], gathered: list[int]) -> None:
    async with nats_room() as here:
        speaker, other = await here.speaker(**options), await here.speaker()
        await other.say(b"SUB a 1")
        await other.said()
        await speaker.say(b"SUB a 1", *pubs())
        said = await speaker.said()
        assert said.count(b"+OK") == (NUMBER + 1 if "verbose" in options else 0)
        assert said.count(b"MSG") == (0 if "echo" in options else NUMBER)
        assert await other.said() == msgs(b"1")
        assert here.node.metrics.dropped[DropReason.NO_SUBSCRIBERS] == 0
        assert gathered == []


async def test_a_stream_takes_each(gathered: list[int]) -> None:
    async with nats_room(store={"durability": "memory"}) as here:
        await here.broker.streams.create(StreamConfig(name="log", filters=("a",), max_messages=5, discard=Discard.NEW))
        speaker = await here.speaker()
        await speaker.say(b"SUB a 1", *pubs())
        said = await speaker.said()
        assert here.broker.streams.info("log").messages == 5
        assert said == msgs(b"1", NUMBER), "what the stream refuses, too"
        assert here.node.metrics.dropped[DropReason.STREAM_FULL] == NUMBER - 5
        assert gathered == []


async def test_access_rules_decide_for_all(gathered: list[int]) -> None:
    def check(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Deny | None:
        return Deny(Reason.NOT_AUTHORIZED) if (action, topic) in (("publish", "b"), ("read", "a")) else None

    async with nats_room() as here:
        here.node.hooks.add("client.check_acl", check)  # type: ignore[arg-type]
        speaker = await here.speaker()
        await speaker.say(b"SUB > 1", *pubs(5, b"b"))
        assert (await speaker.said()).count(b"-ERR 'Permissions Violation") == 5
        assert here.node.metrics.dropped[DropReason.NOT_AUTHORIZED] == 5
        assert gathered == []


HOOKS: dict[str, Callable[..., object]] = {
    "message.publish": lambda _, message: Message("a", b"!" + message.payload),
    "message.deliver": lambda _, message: (
        Withhold(Reason.SUCCESS) if message.payload == b"007" else Message("a", b"!" + message.payload)
    ),
}


@pytest.mark.parametrize("point", HOOKS)
async def test_hooks_see_and_change_each(point: str, gathered: list[int]) -> None:
    async with nats_room() as here:
        here.node.hooks.add(point, HOOKS[point])  # type: ignore[arg-type]
        speaker = await here.speaker()
        await speaker.say(b"SUB a 1", *pubs())
        left = [number for number in range(NUMBER) if point == "message.publish" or number != 7]
        assert await speaker.said() == b"".join([b"MSG a 1 4\r\n!%03d\r\n" % number for number in left])
        assert bool(gathered) is (point == "message.deliver")


@pytest.mark.parametrize("point", ["message.delivered", "delivery.completed", "message.routed", "message.dropped"])
async def test_hooks_are_told_of_each(point: str, gathered: list[int]) -> None:
    seen: list[bytes] = []

    def note(*given: Any) -> None:
        messages: list[Publication] = [each for each in given if isinstance(each, Message | PublishBatch)]
        seen.extend(payload for each in messages for payload in each.payloads)

    async with nats_room() as here:
        here.node.hooks.add(point, note)  # type: ignore[arg-type]
        speaker = await here.speaker()
        if point != "message.dropped":
            await speaker.say(b"SUB a 1")
        await speaker.say(*pubs())
        await speaker.said()
        assert seen == [b"%03d" % number for number in range(NUMBER)]
        assert gathered == [NUMBER - 1]


async def test_bursts_of_mqtt() -> None:
    """At each QoS, with one topic or several, with properties and without."""
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.say(b"SUB > 1")
        await speaker.said()
        three, five = await here.wire("three", version=4), await here.wire("five")
        for wire, version in ((three, 4), (five, 5)):
            for topics in (("t",), ("t", "u")):
                packets = [
                    raw.publish(topics[number % len(topics)], b"%d" % number, version=version)
                    for number in range(NUMBER)
                ]
                await wire.send(*packets)
                await wire.ping()
                expected = [
                    b"MSG %b 1 %d\r\n%d\r\n" % (topics[number % len(topics)].encode(), len(str(number)), number)
                    for number in range(NUMBER)
                ]
                assert await speaker.said() == b"".join(expected)
        properties = raw.user_property("A", "b")
        await five.send(*[raw.publish("t", b"%02d" % number, version=5, properties=properties) for number in range(3)])
        await five.ping()
        assert (await speaker.said()).count(b"HMSG t 1 18 20\r\nNATS/1.0\r\nA: b\r\n\r\n") == 3


async def test_who_has_published_them_and_when() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        seen: list[Publication] = []
        here.node.hooks.add("message.routed", lambda publication, _: seen.append(publication))
        await speaker.say(b"SUB a 1", *pubs(4))
        await speaker.said()
        messages = [message for publication in seen for message in publication.messages]
        (client,) = [each.client for each in here.node.sessions]
        assert {each.publisher for each in messages} == {client.client_id}
        guids = [each.guid for each in messages]
        assert len(set(guids)) == 4
        assert guids == sorted(guids)
        wall = here.node.wall()
        assert all(wall - 60 < each.timestamp <= wall for each in messages)
