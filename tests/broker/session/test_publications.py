"""Packets that are taken as one do what each of them would have done by itself."""

from random import Random
from typing import Any

import pytest
import trio.testing

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.session.export import export_session
from trunkline.hooks import ClientInfo, Deny
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.message import LARGE_PAYLOAD, Message
from trunkline.mqtt.publication import Publication, PublishBatch

TOPICS = ["a", "a", "a", "b/c", "d", "nobody", "$SYS/x", "denied"]

#: What answers a packet, by its first byte.
ANSWERS = {0x32: raw.PUBACK, 0x34: raw.PUBREC, 0x50: raw.PUBREL, 0x62: raw.PUBCOMP}

Seen = list[tuple[object, ...]]


def publications(random: Random, version: int) -> list[bytes]:
    """In streaks of one topic, as they come from real clients, with an odd one here and there."""
    packets: list[bytes] = []
    while len(packets) < 80:
        topic, qos, size = random.choice(TOPICS), random.choice([0, 1, 1, 2]), random.choice([1, 1, 130])
        for _ in range(random.choice([1, 1, 2, 5, 9])):
            number = len(packets) + 1
            payload = b"%03d" % number * (size if random.random() < 0.8 else size + 1)
            packets.append(
                raw.publish(
                    topic,
                    payload,
                    qos=qos,
                    packet_id=number if qos else None,
                    retain=random.random() < 0.05,
                    version=version,
                )
            )
    return packets


async def drain(wire: Wire, limit: int = 1000) -> Seen:
    """Take all that comes, and answer it, until nothing comes any more, or `limit` packets were answered."""
    seen: Seen = []
    while True:
        await trio.testing.wait_all_tasks_blocked()
        await wire.send(raw.PINGREQ)
        came: list[raw.Received] = []
        while (packet := await wire.receive()).type != raw.PINGRESP[0]:
            came.append(packet)
        if not came:
            return seen
        seen += [(p.data[0], p.topic, p.payload, p.packet_id, p.reason) for p in came]
        answers = [raw.ack(ANSWERS[p.data[0]], p.packet_id) for p in came if p.data[0] in ANSWERS and p.reason < 0x80]
        await wire.send(*answers[: max(0, limit)])
        limit -= len(answers)


def listen(here: Room, seen: Seen) -> None:
    """Hooks that see every message, so that no burst stays one."""

    def note(name: str) -> Any:
        def hook(client: ClientInfo, message: Message, *rest: object) -> None:
            seen.append((name, client.client_id, message.topic, message.payload, message.publisher, *rest))

        return hook

    for point in ("message.dropped", "message.acked", "delivery.completed"):
        here.broker.hooks.add(point, note(point))


def watch(here: Room, seen: Seen, publications: list[Publication]) -> None:
    """Hooks that see every message too, and take what came together as it is."""

    def note(name: str) -> Any:
        def hook(client: ClientInfo, publication: Publication) -> None:
            publications.append(publication)
            for message in publication.messages:
                seen.append((name, client.client_id, message.topic, message.payload, message.publisher, message.qos))

        return hook

    for point in ("message.publish", "message.delivered", "message.acked", "delivery.completed"):
        here.broker.hooks.add(point, note(point), publications=True)

    def routed(publication: Publication, receivers: tuple[str, ...]) -> None:
        publications.append(publication)
        for message in publication.messages:
            seen.append(("routed", message.publisher, message.topic, message.payload, sorted(receivers)))

    here.broker.hooks.add("message.routed", routed, publications=True)


def refuse(_client: ClientInfo, action: str, topic: str, *_: object) -> Deny | None:
    return Deny() if action == "publish" and topic == "denied" else None


async def outcome(
    seed: int,
    version: int,
    window: int,
    *,
    hooked: bool,
    acknowledged: int = 1000,
    watched: list[Publication] | None = None,
) -> list[object]:
    """What can be seen of a run from outside, and what its sessions hold at the end."""
    random = Random(seed)
    heard: Seen = []
    subscribers = {
        "zero": ("#", 0, 4),
        "one": ("+", 1, 5),
        "two": ("a", 2, 4),
        "overlapping": ("b/#", 2, 5),
        "shared-1": ("$share/g/a", 1, 4),
        "shared-2": ("$share/g/a", 2, 5),
    }
    async with room(session={"max_inflight": window}) as here:
        here.broker.hooks.add("client.check_acl", refuse)
        if watched is not None:
            watch(here, heard, watched)
        elif hooked:
            listen(here, heard)
        else:
            assert not here.broker.hooks.message_routed, "somebody wants to see every message by itself"
        wires = {name: await here.client(name, version) for name, (_, _, version) in subscribers.items()}
        for name, (topic_filter, qos, _) in subscribers.items():
            await wires[name].subscribe((topic_filter, qos))
        wires["publisher"] = await here.client("publisher", version)
        await wires["publisher"].subscribe(("d", 1))
        for _ in range(2):  # what a connection remembers of its topics makes the second round another way
            await wires["publisher"].send(*publications(random, version))
            for name, wire in reversed(wires.items()):
                seen = await drain(wire, acknowledged)
                # a burst is acknowledged behind what of it comes back to its publisher
                heard += [(name, *each) for each in sorted(seen, key=lambda packet: packet[0] in (0x40, 0x70))]
        figures = await here.node.figures()
        held = []
        for name in wires:
            plain = export_session(here.session(name).session, 0.0, 0.0)
            held.append((name, without_ids(plain["inflight"]), without_ids(plain["queue"]), len(plain["awaiting_rel"])))
    # each client's own order counts, not whose turn was first
    heard.sort(key=lambda each: (each[0], each[1] if isinstance(each[1], str) else ""))
    same = {
        key: value for key, value in figures.items() if not any(word in key for word in ("bytes", "time", "memory"))
    }
    return [heard, held, same]


def without_ids(rows: list[Any]) -> list[Any]:
    """Message ids and times are never the same twice."""
    return [
        [
            {k: v for k, v in cell.items() if k not in ("guid", "timestamp")} if isinstance(cell, dict) else cell
            for cell in row
        ]
        for row in rows
    ]


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("seed", "window"), [(1, 1000), (2, 1000), (3, 7), (4, 7), (5, 32), (6, 1)])
async def test_they_do_what_each_of_them_would(
    seed: int, window: int, version: int, hooked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bursts = 0
    made = PublishBatch.__init__

    def count(burst: PublishBatch, *args: Any) -> None:
        nonlocal bursts
        bursts += 1
        made(burst, *args)

    monkeypatch.setattr(PublishBatch, "__init__", count)
    together = await outcome(seed, version, window, hooked=hooked)
    assert bursts > 10
    bursts = 0
    monkeypatch.setattr("trunkline.broker.connection.connection.Decoder", alone)
    assert await outcome(seed, version, window, hooked=hooked) == together
    assert not bursts


def alone(**settings: Any) -> Decoder:
    return Decoder(**{**settings, "gathers": False})


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_not_acknowledged_is_kept_as_well(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together = await outcome(seed, 5, 20, hooked=False, acknowledged=9)
    monkeypatch.setattr("trunkline.broker.connection.connection.Decoder", alone)
    assert await outcome(seed, 5, 20, hooked=False, acknowledged=9) == together


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("seed", "window"), [(1, 1000), (2, 7), (3, 32), (4, 1)])
async def test_who_only_looks_sees_the_same_and_keeps_them_together(
    seed: int, window: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen_together: list[Publication] = []
    together = await outcome(seed, version, window, hooked=True, watched=seen_together)
    assert any(publication.count > 1 for publication in seen_together)
    monkeypatch.setattr("trunkline.broker.connection.connection.Decoder", alone)
    seen_apart: list[Publication] = []
    assert await outcome(seed, version, window, hooked=True, watched=seen_apart) == together
    assert all(publication.count == 1 for publication in seen_apart)


def burst_of(topics: str, qos: int = 0, payload: bytes = b"x") -> bytes:
    """Packets that come together, of topics with one letter."""
    packets = [
        raw.publish(topic, payload, qos=qos, packet_id=number if qos else None)
        for number, topic in enumerate(topics, start=1)
    ]
    return b"".join(packets)


async def test_who_comes_in_the_middle_of_a_burst_sees_the_rest_and_nobody_misses_it() -> None:
    async with room() as here:
        # two topics that go different ways
        for name, topic_filter in (("x", "a"), ("y", "b")):
            await (await here.client(name)).subscribe((topic_filter, 0))
        publisher = await here.client("publisher")
        await publisher.send(burst_of("aabb"))  # allowed, from now on
        await publisher.ping()
        seen: Seen = []

        def late(client: ClientInfo, message: Message) -> None:
            seen.append(("late", message.topic))

        def look(client: ClientInfo, publication: Publication) -> None:
            seen.append(("look", *[message.topic for message in publication.messages]))
            here.broker.hooks.add("message.publish", late)

        here.broker.hooks.add("message.publish", look, publications=True)
        await publisher.send(burst_of("aabb"))
        await publisher.ping()
    assert seen == [("look", "a", "a"), *[("look", "b"), ("late", "b")] * 2]


@pytest.mark.parametrize("together", [False, True])
async def test_what_is_completed_is_told_of_with_its_payload(together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not together:
        monkeypatch.setattr("trunkline.broker.connection.connection.Decoder", alone)
    payload = b"x" * LARGE_PAYLOAD
    async with room() as here:
        seen: list[bytes] = []

        def look(client: ClientInfo, publication: Publication) -> None:
            seen.extend(message.payload for message in publication.messages)

        here.broker.hooks.add("delivery.completed", look, publications=True)
        subscriber, publisher = await here.client("subscriber"), await here.client("publisher")
        await subscriber.subscribe(("a", 2))
        for _ in range(2):
            await publisher.send(burst_of("aaa", 2, payload))
            await drain(publisher)
            await drain(subscriber)
    assert seen == [payload] * 6


@pytest.mark.parametrize("publications", [False, True])
async def test_acknowledgements_in_a_row_count_up_to_one_of_another_kind(publications: bool) -> None:
    """PUBACKs, the fourth of which is for a message of QoS 2."""
    async with room() as here:
        acked: list[bytes] = []
        here.broker.hooks.add(
            "message.acked",
            lambda client, publication: acked.extend(each.payload for each in publication.messages),
            publications=publications,
        )
        client = await here.client("a")
        await client.subscribe(("t", 2))
        for number, qos in enumerate((1, 1, 1, 2, 1)):
            here.broker.publish("t", b"%d" % number, qos=qos)
        packets = [await client.expect_publish("t", b"%d" % n, qos=qos) for n, qos in enumerate((1, 1, 1, 2, 1))]
        await client.send(*[raw.ack(raw.PUBACK, packet.packet_id) for packet in packets])
        await client.expect_disconnect(0x82)
        assert acked == [b"0", b"1", b"2"]
        assert here.node.metrics.messages_acked == 3
