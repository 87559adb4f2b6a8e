"""A burst on the wire is what its messages are one by one."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.client.bursts import MAX_BATCH, MAX_NUMBERED, MAX_PACKET, gathered
from trunkline.client.link import Link
from trunkline.client.outgoing import OutgoingHalf
from trunkline.client.requests import PublishRequest
from trunkline.client.server_limits import ServerLimits
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.packets import Puback, Pubcomp, Publish, Pubrec
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.versions import Version


def publications(
    topic: str, payloads: list[bytes], qos: int, retain: bool, properties: Properties, version: Version
) -> Iterator[Publication]:
    """What a request sends, one after the other."""
    request = PublishRequest(topic, payloads, qos, retain, properties)
    while request.sent < request.count:
        part = request.part(MAX_BATCH)
        request.sent += len(part)
        each = [properties] * len(part) if properties else ()
        yield gathered([topic], part, qos, retain, each, [request.block], version)


def on_the_wire(
    topic: str, payloads: list[bytes], qos: int, retain: bool, properties: Properties, version: Version
) -> list[Publish]:
    link = Link(version)
    first = 1
    for publication in publications(topic, payloads, qos, retain, properties, version):
        link.publish(publication, range(first, first + publication.count) if qos else range(0))
        first += publication.count
    decoder = Decoder(server=True, version=version)
    packets = decoder.feed(link.take())
    assert decoder.error is None
    return [packet for packet in packets if isinstance(packet, Publish)]


@given(
    st.sampled_from(["t", "a/b", "ü" * 40, "long/" * 40]),
    st.lists(st.binary(max_size=300) | st.just(b"same size!"), min_size=1, max_size=20),
    st.sampled_from([0, 1, 2]),
    st.booleans(),
    st.sampled_from(["", "text/plain", "x" * 200]),
    st.sampled_from(list(Version)),
)
def test_a_burst_says_what_its_messages_say(
    topic: str, payloads: list[bytes], qos: int, retain: bool, content_type: str, version: Version
) -> None:
    properties: Properties = {"content_type": content_type} if content_type else NO_PROPERTIES
    packets = on_the_wire(topic, payloads, qos, retain, properties, version)
    assert [packet.payload for packet in packets] == payloads
    assert {(packet.topic, packet.qos, packet.retain) for packet in packets} == {(topic, qos, retain)}
    assert [packet.packet_id for packet in packets] == ([*range(1, len(payloads) + 1)] if qos else [0] * len(payloads))
    if version is Version.V5:
        assert all(packet.properties == properties for packet in packets)


@given(
    st.lists(st.tuples(st.sampled_from(["t", "a/b", "ü"]), st.binary(max_size=300)), min_size=2, max_size=20),
    st.sampled_from([0, 1, 2]),
    st.sampled_from(list(Version)),
)
def test_messages_to_several_topics(messages: list[tuple[str, bytes]], qos: int, version: Version) -> None:
    topics, payloads = [topic for topic, _ in messages], [payload for _, payload in messages]
    link, decoder = Link(version), Decoder(server=True, version=version)
    packet_ids = range(1, len(topics) + 1) if qos else range(0)
    link.publish(gathered(topics, payloads, qos, False, version=version), packet_ids)
    packets = [packet for packet in decoder.feed(link.take()) if isinstance(packet, Publish)]
    assert [(packet.topic, packet.payload) for packet in packets] == messages


def sent_on_a_connection(half: OutgoingHalf, version: Version) -> list[Publish]:
    """What a new connection of the session sends at once."""
    link, decoder = Link(version), Decoder(server=True, version=version)
    link.open(ServerLimits(receive_maximum=7))
    half.attach(link, 0.0)
    packets = decoder.feed(link.take())
    assert decoder.error is None
    return [packet for packet in packets if isinstance(packet, Publish)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["t", "a/b", "ü"]),
            st.just(b"same size!") | st.binary(max_size=300),
            st.sampled_from(["", "text/plain", "text/html!", "x" * 200]),
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from([1, 2]),
    st.sampled_from(list(Version)),
    st.integers(0, 7),
)
def test_messages_keep_their_own_properties_also_when_sent_again(
    messages: list[tuple[str, bytes, str]], qos: int, version: Version, answered: int
) -> None:
    half = OutgoingHalf()
    for topic, payload, content_type in messages:
        properties: Properties = {"content_type": content_type} if content_type else NO_PROPERTIES
        half.add(PublishRequest(topic, [payload], qos, properties=properties))
    first = sent_on_a_connection(half, version)
    for packet in first[:answered]:
        if qos == 1:
            half.answered(Puback(packet.packet_id), 0.0)
        else:
            half.answered(Pubrec(packet.packet_id), 0.0)
            half.pubcomp(Pubcomp(packet.packet_id), 0.0)
    again = sent_on_a_connection(half, version)
    expected = messages if version is Version.V5 else [(topic, payload, "") for topic, payload, _ in messages]
    for packets, start in ((first, 0), (again, min(answered, len(first)))):
        found = [(packet.topic, packet.payload, packet.properties.get("content_type", "")) for packet in packets]
        assert found == expected[start : start + 7]


@pytest.mark.parametrize(
    ("topic", "payload", "number", "qos", "counts"),
    [
        ("t", b"x", 3 * MAX_BATCH + 1, 1, [MAX_BATCH] * 3 + [1]),
        ("t", bytes(MAX_PACKET), 2, 0, [2]),
        ("t", bytes(MAX_PACKET + 1), 2, 0, [1, 1]),
        ("t", bytes(MAX_NUMBERED), 2, 1, [2]),
        ("t", bytes(MAX_NUMBERED + 1), 2, 1, [1, 1]),
        ("t" * 200, b"x", 2, 1, [1, 1]),
    ],
    ids=["many", "large", "too large", "large QoS 1", "too large QoS 1", "long topic"],
)
def test_what_makes_a_batch(topic: str, payload: bytes, number: int, qos: int, counts: list[int]) -> None:
    found = list(publications(topic, [payload] * number, qos, False, NO_PROPERTIES, Version.V5))
    assert [each.count for each in found] == counts
    assert all(isinstance(each, PublishBatch) == (each.count > 1) for each in found)


def test_a_large_payload_goes_alone() -> None:
    large = bytes(MAX_PACKET + 1)
    found = publications("t", [b"1", b"2", large, b"3", b"4"], 0, False, NO_PROPERTIES, Version.V5)
    assert [each.count for each in found] == [2, 1, 2]


@pytest.mark.parametrize("topic", ["a\0b", "\ud800"])
def test_what_cannot_be_said(topic: str) -> None:
    with pytest.raises(ValueError, match="U\\+0000|surrogates"):
        PublishRequest(topic, [b"x", b"y"])
