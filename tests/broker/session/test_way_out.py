"""What one client may send, written for others of other versions and limits: it says the same, or is left out as too
large. Read back by our own decoder and by one that shares nothing with it."""

import reprlib
from dataclasses import dataclass, replace
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Publish
from trunkline.mqtt.versions import Version

ANSWERS = {0x32: raw.PUBACK, 0x34: raw.PUBREC, 0x62: raw.PUBCOMP}

# Sizes at the bounds of a length byte, of a string and of what a client may take


def around(*bounds: int) -> Any:
    return st.one_of([st.integers(max(0, bound - 12), bound + 3) for bound in bounds])


def texts(*longest: int, letters: str = "aé€𝄞 ") -> Any:
    """Of so many bytes, or a few."""
    short = st.text(st.sampled_from(letters), max_size=12)
    sized = st.tuples(st.sampled_from(longest), st.sampled_from(letters)).map(
        lambda d: d[1] * (d[0] // len(d[1].encode()))
    )
    return st.one_of(short, short, sized)


topics = texts(110, 127, 128, 250, 16_370, 65_535, letters="abé€𝄞").filter(bool)
payloads = st.one_of(st.integers(0, 3), around(127, 16_383), around(256, 65_535)).map(bytes)
users = st.one_of(
    st.lists(st.tuples(texts(127), texts(300)), max_size=4),
    st.tuples(texts(65_535), texts(65_535)).map(lambda pair: [pair]),
    st.integers(1000, 2000).map(lambda count: [("key", "value")] * count),
)
properties = st.fixed_dictionaries(
    {},
    optional={
        0x01: st.integers(0, 1),
        raw.MESSAGE_EXPIRY: st.sampled_from([1000, 0xFFFF_FFFE, 0xFFFF_FFFF]),
        0x03: texts(65_535),
        0x08: topics,
        0x09: around(0, 255, 65_535 - 3).map(bytes),
        raw.USER_PROPERTY: users,
    },
)


#: Bytes that are published in one example, and how often: what is longer is sent once, or left out.
MAX_BYTES = 400_000


@dataclass(repr=False)
class Publication:
    version: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[int, Any]
    #: 0 is none. One that has this topic already stands for it.
    alias: int
    #: Sent in one go, so that they may be taken as one.
    times: int

    def __post_init__(self) -> None:
        if self.version != 5:
            self.properties, self.alias = {}, 0

    def __repr__(self) -> str:
        """Hypothesis shows it: not all of a topic of 65,535 letters."""
        return f"Publication({reprlib.repr(vars(self))})"

    def __len__(self) -> int:
        """Bytes of one packet, roughly."""
        return len(self.topic.encode()) + len(self.payload) + len(self.block(self.version))

    def block(self, version: int, more: bytes = b"") -> bytes:
        write: dict[int, Any] = {
            0x01: raw.payload_format,
            0x02: raw.message_expiry,
            0x03: raw.content_type,
            0x08: raw.response_topic,
            0x09: raw.correlation_data,
            0x26: lambda pairs: b"".join(raw.user_property(*pair) for pair in pairs),
        }
        if version != 5:
            return b""
        return b"".join(write[number](value) for number, value in self.properties.items()) + more

    @property
    def said(self) -> list[tuple[int, Any]]:
        """Its properties as they are read, but for the seconds that are left."""
        plain = {n: value for n, value in self.properties.items() if n not in (raw.USER_PROPERTY, raw.MESSAGE_EXPIRY)}
        return [*plain.items(), *((raw.USER_PROPERTY, pair) for pair in self.properties.get(raw.USER_PROPERTY, []))]


publications = st.builds(
    Publication,
    st.sampled_from([3, 4, 5, 5, 5]),
    topics,
    payloads,
    st.integers(0, 2),
    st.booleans(),
    properties,
    st.integers(0, 3),
    st.sampled_from([1, 1, 2, 5]),
)


@dataclass
class Receiver:
    version: int
    #: Subscribed before all is published; or that, and away meanwhile; or after it, for what was retained.
    comes: str
    qos: int
    as_published: bool
    identifier: int
    aliases: int
    #: How many bytes more than the first message the largest packet may have.
    more: int | None
    #: Bytes of the largest packet; 0 is no limit.
    largest: int = 0

    def __post_init__(self) -> None:
        if self.version != 5:
            self.as_published, self.identifier, self.aliases, self.more = False, 0, 0, None

    @property
    def identifiers(self) -> bytes:
        return raw.subscription_identifier(self.identifier) if self.identifier else b""

    def connect(self, name: str) -> bytes:
        asked = b""
        if self.version == 5:
            asked = raw.session_expiry(1000) + raw.topic_alias_maximum(self.aliases)
            asked += raw.maximum_packet_size(self.largest) if self.largest else b""
        return raw.connect(name, version=self.version, clean=False, properties=asked)

    def size(self, sent: Publication) -> int:
        """Of the PUBLISH, without an alias."""
        qos, block = min(sent.qos, self.qos), sent.block(self.version, self.identifiers)
        packet_id = 1 if qos else None
        return len(
            raw.publish(sent.topic, sent.payload, qos=qos, packet_id=packet_id, properties=block, version=self.version)
        )

    def take(self, packet: raw.Received, sent: Publication, aliases: dict[Any, str]) -> bool:
        """Does the packet say what was published?"""
        own = (raw.TOPIC_ALIAS, raw.SUBSCRIPTION_IDENTIFIER, raw.MESSAGE_EXPIRY)
        found = [entry for entry in packet.properties if entry[0] not in own]
        topic = packet.topic or aliases[packet.get(raw.TOPIC_ALIAS)]
        left = packet.get(raw.MESSAGE_EXPIRY)
        given = sent.properties.get(raw.MESSAGE_EXPIRY) if self.version == 5 else None
        return (
            (topic, packet.payload, packet.qos) == (sent.topic, sent.payload, min(sent.qos, self.qos))
            and packet.retain == (sent.retain and (self.as_published or self.comes == "late"))
            and sorted(found, key=repr) == sorted(sent.said if self.version == 5 else [], key=repr)
            and packet.all(raw.SUBSCRIPTION_IDENTIFIER) == ([self.identifier] if self.identifier else [])
            and (left is None if given is None else isinstance(left, int) and given - 60 <= left <= given)
        )


receivers = st.builds(
    Receiver,
    st.sampled_from([3, 4, 5, 5, 5]),
    st.sampled_from(["early", "away", "late"]),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([0, 1, 127, 128, 268_435_455]),
    st.sampled_from([0, 1, 2, 65_535]),
    st.none() | st.integers(-3, 6),
)


@settings(max_examples=60)
@given(st.lists(publications, min_size=1, max_size=5), st.lists(receivers, min_size=1, max_size=3))
def test_what_is_delivered_says_what_was_published(sent: list[Publication], to: list[Receiver]) -> None:
    trio.run(_play, _bounded(sent), to)


def _bounded(sent: list[Publication]) -> list[Publication]:
    left, kept = MAX_BYTES, list[Publication]()
    for each in sent:
        if kept and len(each) > left:
            break
        times = max(1, min(each.times, left // max(1, len(each))))
        kept.append(replace(each, times=times))
        left -= times * len(each)
    return kept


async def _play(sent: list[Publication], to: list[Receiver]) -> None:
    dropped: dict[str, list[str]] = {}

    def drop(client: Any, message: Message, reason: str) -> None:
        if reason != "no_subscribers":
            dropped.setdefault(client.client_id, []).append(reason)

    async with room(mqtt={"max_packet_size": "10MiB"}) as here:
        here.node.hooks.add("message.dropped", drop)
        named = {f"r{number}": receiver for number, receiver in enumerate(to)}
        for receiver in to:
            if receiver.more is not None:
                receiver.largest = max(60, receiver.size(sent[0]) + receiver.more)
        clients = {name: await _subscribe(here, name, each) for name, each in named.items() if each.comes != "late"}
        for name, client in clients.items():
            if named[name].comes == "away":
                await client.abort()
        await _publish(here, sent)
        for name, receiver in named.items():
            if receiver.comes == "late":
                clients[name] = await _subscribe(here, name, receiver)
            elif receiver.comes == "away":
                clients[name] = await _connect(here, name, receiver)
            await _check(clients[name], receiver, sent, dropped.get(name, []))


async def _connect(here: Room, name: str, receiver: Receiver) -> Wire:
    client = here.wire(receiver.version)
    await client.send(receiver.connect(name))
    assert (await client.expect_type(raw.CONNACK)).reason == 0
    return client


async def _subscribe(here: Room, name: str, receiver: Receiver) -> Wire:
    client = await _connect(here, name, receiver)
    option = raw.options(receiver.qos, as_published=receiver.as_published)
    await client.subscribe(("#", option), properties=receiver.identifiers)
    return client


async def _publish(here: Room, sent: list[Publication]) -> None:
    clients = {version: await here.client(f"p{version}", version=version) for version in (3, 4, 5)}
    aliases: dict[int, str] = {}
    for each in sent:
        topic, more = each.topic, b""
        if each.alias:
            more = raw.topic_alias(each.alias)
            if aliases.get(each.alias) == topic:
                topic = ""
            aliases[each.alias] = each.topic
        block = each.block(each.version, more)
        client, numbers = clients[each.version], range(1, each.times + 1)
        await client.send(
            *[
                raw.publish(
                    topic,
                    each.payload,
                    qos=each.qos,
                    packet_id=number if each.qos else None,
                    retain=each.retain,
                    properties=block,
                    version=each.version,
                )
                for number in numbers
            ]
        )
        for first in ((), (raw.PUBACK,), (raw.PUBREC, raw.PUBCOMP))[each.qos]:
            for number in numbers:
                assert (await client.expect_type(first)).packet_id == number
            if first == raw.PUBREC:
                await client.send(*[raw.ack(raw.PUBREL, number) for number in numbers])
        await client.ping()


async def _check(client: Wire, receiver: Receiver, sent: list[Publication], dropped: list[str]) -> None:
    packets = await _drain(client, receiver)
    sent = [each for each in sent for _ in range(each.times)]
    if receiver.comes == "late":  # and gets each topic once, in any order
        kept = {each.topic: each for each in sent if each.retain}
        sent = [each for each in kept.values() if each.payload]
        packets.sort(key=lambda packet: list(kept).index(packet.topic))
    aliases: dict[Any, str] = {packet.get(raw.TOPIC_ALIAS): packet.topic for packet in packets if packet.topic}
    left_out = 0
    for each in sent:
        if packets and receiver.take(packets[0], each, aliases):
            assert not receiver.largest or len(packets[0].data) <= receiver.largest
            del packets[0]
        else:
            # an alias takes three bytes more, and perhaps one more of each length
            assert receiver.largest, f"{each!r:.200} did not come"
            assert receiver.size(each) + 5 > receiver.largest
            left_out += 1
    assert packets == []
    assert dropped == ["too_large"] * left_out
    if receiver.largest and not receiver.aliases:
        assert left_out == sum(receiver.size(each) > receiver.largest for each in sent)


async def _drain(client: Wire, receiver: Receiver) -> list[raw.Received]:
    """All that comes until nothing does, answered, and read by our own decoder as well."""
    decoder = Decoder(server=False, version=Version(receiver.version), max_levels=65_535)
    publishes: list[raw.Received] = []
    while True:
        await client.send(raw.PINGREQ)
        came: list[raw.Received] = []
        while (packet := await client.receive()).type != raw.PINGRESP[0]:
            came.append(packet)
        if not came:
            return publishes
        for packet in came:
            [read] = decoder.feed(packet.data)
            if packet.type == raw.PUBLISH:
                assert isinstance(read, Publish)
                assert (read.topic, read.payload, read.qos, read.packet_id) == (
                    packet.topic,
                    packet.payload,
                    packet.qos,
                    packet.packet_id,
                )
                publishes.append(packet)
        await client.send(
            *[raw.ack(ANSWERS[p.data[0] & 0xF6], p.packet_id) for p in came if p.data[0] & 0xF6 in ANSWERS]
        )
