"""Packets that are taken as one do what each of them would have done by itself."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.broker.room import room
from tests.broker.session.sequences import Sequence
from tests.conformance import raw
from tests.wire import Wire
from trunkline.hooks import ClientInfo, Hooks
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.message import LARGE_PAYLOAD, Message
from trunkline.mqtt.publication import Decoded, Publication, PublishBatch

#: What answers a packet, by its first byte.
ANSWERS = {0x32: raw.PUBACK, 0x34: raw.PUBREC, 0x50: raw.PUBREL, 0x62: raw.PUBCOMP}

Seen = list[tuple[object, ...]]


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


def alone(**settings: Any) -> Decoder:
    settings["gathers"] = False
    return Decoder(**settings)


class ByteByByte(Decoder):
    """What comes is cut into single bytes."""

    def feed(self, data: bytes) -> list[Decoded]:
        packets: list[Decoded] = []
        for number in range(len(data)):
            packets += super().feed(data[number : number + 1])
        return packets


def byte_by_byte(**settings: Any) -> Decoder:
    settings["gathers"] = False
    return ByteByByte(**settings)


def outcome(seed: int, decoder: Callable[..., Decoder]) -> list[object]:
    def add(hooks: Hooks, point: str, one: object, many: Callable[..., None]) -> None:
        hooks.add(point, many, publications=True)

    with patch("trunkline.broker.connection.connection.Decoder", decoder):
        return trio.run(Sequence(seed, add).play, clock=MockClock(rate=0))


@given(st.integers(0, 10_000))
@settings(max_examples=5)
def test_they_do_what_each_of_their_messages_would(seed: int) -> None:
    together = outcome(seed, Decoder)
    assert outcome(seed, alone) == together
    assert outcome(seed, byte_by_byte) == together


def test_sequences_have_messages_that_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    made = PublishBatch.__init__

    def count(batch: PublishBatch, *args: Any) -> None:
        made(batch, *args)
        sizes.append(batch.count)

    monkeypatch.setattr(PublishBatch, "__init__", count)
    outcome(0, Decoder)
    assert len([size for size in sizes if size > 1]) > 5


def packets_of(topics: str, qos: int = 0, payload: bytes = b"x") -> bytes:
    """Packets that come together, of topics with one letter."""
    packets = [
        raw.publish(topic, payload, qos=qos, packet_id=number if qos else None)
        for number, topic in enumerate(topics, start=1)
    ]
    return b"".join(packets)


async def test_who_comes_in_the_middle_of_a_batch_sees_the_rest_and_nobody_misses_it() -> None:
    async with room() as here:
        # two topics that go different ways
        for name, topic_filter in (("x", "a"), ("y", "b")):
            await (await here.client(name)).subscribe((topic_filter, 0))
        publisher = await here.client("publisher")
        await publisher.send(packets_of("aabb"))  # allowed, from now on
        await publisher.ping()
        seen: Seen = []

        def late(client: ClientInfo, message: Message) -> None:
            seen.append(("late", message.topic))

        def look(client: ClientInfo, publication: Publication) -> None:
            seen.append(("look", *[message.topic for message in publication.messages]))
            here.broker.hooks.add("message.publish", late)

        here.broker.hooks.add("message.publish", look, publications=True)
        await publisher.send(packets_of("aabb"))
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
            await publisher.send(packets_of("aaa", 2, payload))
            await drain(publisher)
            await drain(subscriber)
    assert seen == [payload] * 6


@pytest.mark.parametrize("publications", [False, True])
async def test_acknowledgements_in_a_row_count_up_to_one_of_another_kind(publications: bool) -> None:
    """PUBACKs, the fourth of which is for a message of QoS 2."""
    async with room() as here:
        acked: list[bytes] = []

        def look(client: ClientInfo, publication: Publication) -> None:
            acked.extend(message.payload for message in publication.messages)

        here.broker.hooks.add(
            "message.acked",
            look,
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
