"""MQTT 5.0, what bytes make a packet (1.5, 2, 4.7, 4.13): malformed ones, strings, lengths, how early they are
judged."""

import pytest

from tests.conformance import raw
from tests.conformance.lab import Lab, laboratory, refused
from tests.conformance.statements import shows

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
NAME_INVALID = 0x90

TOPIC = "format"


@shows("MQTT-2.1.3-1", "MQTT-4.13.1-1", "MQTT-3.6.1-1", "MQTT-3.8.1-1", "MQTT-3.10.1-1", "MQTT-3.14.1-1")
@pytest.mark.parametrize(
    ("packet", "flags"),
    [
        pytest.param(packet, flags, id=f"{name}-{flags:04b}")
        for name, packet, right in [
            ("puback", raw.ack(raw.PUBACK, 1), 0),
            ("pubrec", raw.ack(raw.PUBREC, 1), 0),
            ("pubrel", raw.ack(raw.PUBREL, 1), 2),
            ("pubcomp", raw.ack(raw.PUBCOMP, 1), 0),
            ("subscribe", raw.subscribe(1, (TOPIC, 0)), 2),
            ("unsubscribe", raw.unsubscribe(1, TOPIC), 2),
            ("pingreq", raw.PINGREQ, 0),
            ("disconnect", raw.disconnect(), 0),
        ]
        for flags in (0, 1, 2, 4, 8, 15)
        if flags != right
    ],
)
async def test_reserved_flags_of_the_fixed_header(lab: Lab, packet: bytes, flags: int) -> None:
    client = await lab.client("a")
    await client.send(bytes([packet[0] & 0xF0 | flags]) + packet[1:])
    await client.expect_disconnect(MALFORMED)


@shows("MQTT-3.15.1-1")
@pytest.mark.parametrize("flags", [1, 2, 8])
async def test_reserved_flags_of_auth(lab: Lab, flags: int) -> None:
    client = await lab.client("a")
    packet = raw.auth(0x19, raw.authentication_method("x"))
    await client.send(bytes([0xF0 | flags]) + packet[1:])
    await client.expect_disconnect(MALFORMED)


@shows("MQTT-3.3.1-4", "MQTT-4.13.1-1")
async def test_qos_3(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.publish(lab.topic("t"), b"x", qos=3, packet_id=1))
    await client.expect_disconnect(MALFORMED)


@shows("MQTT-3.3.1-2")
async def test_dup_at_qos_0(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.publish(lab.topic("t"), b"x", dup=True))
    await client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)


@shows("MQTT-2.1.3-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize("first", [0x00, 0x0F])
async def test_packet_type_0(lab: Lab, first: int) -> None:
    client = await lab.client("a")
    await client.send(bytes([first, 0]))
    await client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)


@shows("MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param("20 03 00 00 00", id="connack"),
        pytest.param("90 04 00 01 00 00", id="suback"),
        pytest.param("b0 04 00 01 00 00", id="unsuback"),
        pytest.param("d0 00", id="pingresp"),
    ],
)
async def test_packets_that_only_a_broker_sends(lab: Lab, packet: str) -> None:
    client = await lab.client("a")
    await client.send(packet)
    await client.expect_disconnect(PROTOCOL_ERROR)


@shows("MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param("30 00", id="publish-empty"),
        pytest.param("30 01 00", id="publish-half-a-length"),
        pytest.param("30 03 00 05 61", id="publish-topic-longer-than-the-packet"),
        pytest.param("30 03 00 01 61", id="publish-without-a-property-length"),
        pytest.param("30 04 00 01 61 05", id="publish-properties-longer-than-the-packet"),
        pytest.param("30 06 00 01 61 02 02 00", id="publish-property-cut"),
        pytest.param("32 04 00 01 61 00", id="publish-half-a-packet-id"),
        pytest.param("40 00", id="puback-empty"),
        pytest.param("40 01 00", id="puback-half-a-packet-id"),
        pytest.param("62 05 00 01 00 05 1f", id="pubrel-properties-longer-than-the-packet"),
        pytest.param("82 02 00 01", id="subscribe-without-a-property-length"),
        pytest.param("82 06 00 01 00 00 01 61", id="subscribe-without-options"),
        pytest.param("82 05 00 01 00 00 05", id="subscribe-filter-cut"),
        pytest.param("a2 05 00 01 00 00 05", id="unsubscribe-filter-cut"),
        pytest.param("c0 01 00", id="pingreq-with-a-body"),
        pytest.param("e0 03 00 05 11", id="disconnect-properties-longer-than-the-packet"),
        pytest.param("e0 03 00 00 00", id="disconnect-with-bytes-left-over"),
        pytest.param("40 05 00 01 00 00 00", id="puback-with-bytes-left-over"),
    ],
)
async def test_short_and_long_packets(lab: Lab, packet: str) -> None:
    client = await lab.client("a")
    await client.send(packet)
    await client.expect_disconnect(MALFORMED)


@shows("MQTT-1.5.5-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "packet",
    [pytest.param("c0 ff ff ff ff", id="four-bytes-go-on"), pytest.param("c0 80 80 80 80 00", id="five-bytes")],
)
async def test_a_length_of_more_than_four_bytes(lab: Lab, packet: str) -> None:
    client = await lab.client("a")
    await client.send(packet)
    await client.expect_disconnect(MALFORMED)


@shows("MQTT-1.5.5-1")
async def test_a_length_written_in_more_bytes_than_it_needs(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send("30 84 00 00 01 61 00")
    await client.expect_disconnect(MALFORMED)


@shows("MQTT-1.5.5-1", "MQTT-2.2.2-1")
@pytest.mark.parametrize("size", [0, 1, 119, 120, 121, 16_373, 16_374, 16_375, 70_000])
async def test_lengths_at_the_edges_of_their_encoding(lab: Lab, size: int) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.subscribe(topic)
    await client.send(raw.publish(topic, bytes(size)))
    # Byte by byte what was sent: shortest length, property length 0, no packet identifier.
    await client.expect(raw.publish(topic, bytes(size)))


@shows("MQTT-4.13.1-1")
async def test_a_wrong_first_byte_is_judged_before_its_length(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send("63 ff")
    await client.expect_disconnect(MALFORMED)


@shows("MQTT-4.13.1-1", "MQTT-4.13.2-1")
async def test_what_came_before_a_bad_packet_is_done(lab: Lab) -> None:
    client, other = await lab.client("a"), await lab.client("b")
    await other.subscribe(lab.topic("#"))
    await client.send(raw.publish(lab.topic("t"), b"1"), "c1 00", raw.publish(lab.topic("t"), b"2"))
    await client.expect_disconnect(MALFORMED)
    await other.take_publish(lab.topic("t"), b"1")
    await other.expect_nothing()


@shows("MQTT-4.13.1-1")
async def test_a_bad_packet_is_the_concern_of_its_sender_only(lab: Lab) -> None:
    client, other = await lab.client("a"), await lab.client("b")
    await client.send("00 00")
    await client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)
    await other.ping()


@shows("MQTT-3.14.4-2", "MQTT-4.13.2-1", "MQTT-3.14.4-1")
async def test_the_goodbye_reaches_a_client_that_goes_on_sending(lab: Lab) -> None:
    """The broker reads on until the client closes: a reset would destroy the DISCONNECT on its way."""
    client = await lab.client("a")
    await client.send("00 00")
    for _ in range(50):
        await client.send(raw.publish(lab.topic("t"), bytes(1000)))
    await client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)


BAD_STRINGS = [
    pytest.param(b"\xff", id="no-utf8"),
    pytest.param(b"a\xc0\xafb", id="overlong"),
    pytest.param(b"\xed\xa0\x80", id="surrogate"),
    pytest.param(b"\xf4\x90\x80\x80", id="above-10FFFF"),
    pytest.param(b"a\x00b", id="nul"),
    pytest.param(b"\xe2\x82", id="cut"),
    pytest.param(b"a\x1fb", id="control-character"),
    pytest.param(b"a\x7fb", id="delete"),
    pytest.param(b"\xc2\x85", id="control-character-above-127"),
    pytest.param(b"\xef\xbf\xbf", id="U+FFFF"),
    pytest.param(b"\xef\xbf\xbe", id="U+FFFE"),
    pytest.param(b"\xf0\x9f\xbf\xbf", id="U+1FFFF"),
]


@shows(
    "MQTT-1.5.4-1",
    "MQTT-1.5.4-2",
    "MQTT-1.5.7-1",
    "MQTT-3.3.2-1",
    "MQTT-3.3.2-13",
    "MQTT-3.3.2-19",
    "MQTT-3.8.3-1",
    "MQTT-3.10.3-1",
    "MQTT-4.7.3-2",
)
@pytest.mark.parametrize("place", ["topic", "response-topic", "content-type", "name", "value", "filter", "unsubscribe"])
@pytest.mark.parametrize("text", BAD_STRINGS)
async def test_strings_that_are_refused(lab: Lab, place: str, text: bytes) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    packets = {
        "topic": lambda: raw.publish(text),
        "response-topic": lambda: raw.publish(topic, properties=raw.response_topic(text)),
        "content-type": lambda: raw.publish(topic, properties=raw.content_type(text)),
        "name": lambda: raw.publish(topic, properties=raw.user_property(text, "v")),
        "value": lambda: raw.publish(topic, properties=raw.user_property("n", text)),
        "filter": lambda: raw.subscribe(1, (text, 0)),
        "unsubscribe": lambda: raw.unsubscribe(1, text),
    }
    await client.send(packets[place]())
    await client.expect_disconnect(MALFORMED)


@shows("MQTT-1.5.4-3", "MQTT-4.7.3-4")
@pytest.mark.parametrize(
    "text",
    ["\ufeff", "a\ufeffb", "\ufeffa", "é", "e\u0301", " ", "a b ", "𝄞", "\U0010fffd", "\u00a0", "A", "//", "\u200b"],
)
async def test_strings_that_are_passed_on_byte_by_byte(lab: Lab, text: str) -> None:
    client = await lab.client("a")
    topic = lab.topic(text)
    await client.subscribe(topic, lab.topic("other"))
    properties = raw.content_type(text) + raw.response_topic(text) + raw.user_property(text, text)
    await client.send(raw.publish(topic, b"x", properties=properties))
    packet = await client.expect_publish(topic, b"x")
    assert sorted(packet.properties, key=str) == sorted([(0x03, text), (0x08, text), (0x26, (text, text))], key=str)


@shows("MQTT-4.7.3-3")
async def test_the_longest_topic(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("x" * (65_535 - len(lab.topic(""))))
    assert await client.subscribe((topic, 0)) == [0]
    await client.publish(topic, b"x")
    await client.expect_publish(topic, b"x")


@shows("MQTT-4.7.0-1", "MQTT-3.3.2-2", "MQTT-4.7.3-1")
@pytest.mark.parametrize("topic", ["#", "+", "a/#", "a/+", "a+", "#a", "+/a"])
async def test_a_publish_to_wildcards(lab: Lab, topic: str) -> None:
    client = await lab.client("a")
    await client.send(raw.publish(topic, b"x"))
    await client.expect_disconnect(MALFORMED)


@shows("MQTT-4.7.3-1")
async def test_a_publish_to_an_empty_topic(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.publish("", b"x"))
    await client.expect_disconnect(PROTOCOL_ERROR, NAME_INVALID)


@shows("MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.3-1")
@pytest.mark.parametrize("packet", ["subscribe", "unsubscribe"])
@pytest.mark.parametrize("filter", ["", "#/a", "a#", "a/b#", "a/#/b", "##", "+a", "a+", "a/b+/c", "a/++/b", "+#"])
async def test_filters_that_are_none(lab: Lab, filter: str, packet: str) -> None:
    client = await lab.client("a")
    await client.send(raw.subscribe(1, (filter, 0)) if packet == "subscribe" else raw.unsubscribe(1, filter))
    await client.expect_disconnect(MALFORMED)


@shows("MQTT-2.2.1-3", "MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(raw.publish("a", qos=1, packet_id=0), id="publish-1"),
        pytest.param(raw.publish("a", qos=2, packet_id=0), id="publish-2"),
        pytest.param(raw.subscribe(0, ("a", 0)), id="subscribe"),
        pytest.param(raw.unsubscribe(0, "a"), id="unsubscribe"),
        pytest.param(raw.ack(raw.PUBACK, 0), id="puback"),
        pytest.param(raw.ack(raw.PUBREL, 0), id="pubrel"),
    ],
)
async def test_packet_id_0(lab: Lab, packet: bytes) -> None:
    client = await lab.client("a")
    await client.send(packet)
    await client.expect_disconnect(PROTOCOL_ERROR)


@shows("MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(raw.payload_format(1) * 2, id="payload-format"),
        pytest.param(raw.message_expiry(1) * 2, id="message-expiry"),
        pytest.param(raw.content_type("a") * 2, id="content-type"),
        pytest.param(raw.response_topic("a") * 2, id="response-topic"),
        pytest.param(raw.correlation_data(b"a") * 2, id="correlation-data"),
        pytest.param(raw.topic_alias(1) * 2, id="topic-alias"),
    ],
)
async def test_a_publish_property_that_is_repeated(lab: Lab, properties: bytes) -> None:
    client = await lab.client("a")
    await client.send(raw.publish(lab.topic("t"), properties=properties))
    await client.expect_disconnect(PROTOCOL_ERROR)


@shows("MQTT-4.13.1-1")
@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        pytest.param(raw.publish("a", properties=raw.session_expiry(1)), PROTOCOL_ERROR, id="publish-session-expiry"),
        pytest.param(raw.publish("a", properties=raw.session_expiry(1)[:3]), MALFORMED, id="publish-half-an-expiry"),
        pytest.param(raw.publish("a", properties=raw.will_delay(1)), PROTOCOL_ERROR, id="publish-will-delay"),
        pytest.param(raw.publish("a", properties=b"\x7f\0"), MALFORMED, id="publish-unknown"),
        pytest.param(raw.ack(raw.PUBACK, 1, 0, raw.topic_alias(1)), PROTOCOL_ERROR, id="puback-topic-alias"),
        pytest.param(
            raw.subscribe(1, ("a", 0), properties=raw.content_type("a")), MALFORMED, id="subscribe-content-type"
        ),
        pytest.param(
            raw.unsubscribe(1, "a", properties=raw.subscription_identifier(1)), MALFORMED, id="unsubscribe-identifier"
        ),
        pytest.param(raw.disconnect(0, raw.receive_maximum(1)), PROTOCOL_ERROR, id="disconnect-receive-maximum"),
    ],
)
async def test_a_property_where_it_cannot_be(lab: Lab, packet: bytes, reason: int) -> None:
    client = await lab.client("a")
    await client.send(packet)
    await client.expect_disconnect(reason)


@shows("MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-3.6.2-1", "MQTT-3.7.2-1", "MQTT-3.14.2-1", "MQTT-3.15.2-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(raw.ack(raw.PUBACK, 1, 0x01), id="puback"),
        pytest.param(raw.ack(raw.PUBREC, 1, 0x92), id="pubrec"),
        pytest.param(raw.ack(raw.PUBREL, 1, 0x10), id="pubrel"),
        pytest.param(raw.ack(raw.PUBCOMP, 1, 0x80), id="pubcomp"),
        pytest.param(raw.disconnect(0x01), id="disconnect"),
        pytest.param(raw.disconnect(0x8B), id="disconnect-of-a-broker"),
        pytest.param(raw.auth(0x01, raw.authentication_method("x")), id="auth"),
    ],
)
async def test_a_reason_code_that_the_packet_does_not_have(lab: Lab, packet: bytes) -> None:
    client = await lab.client("a")
    await client.send(packet)
    await client.expect_disconnect(PROTOCOL_ERROR, MALFORMED)


@shows("MQTT-4.13.1-1")
async def test_a_packet_above_the_brokers_maximum() -> None:
    async with laboratory(mqtt={"max_packet_size": 1000}) as lab:
        client = await lab.client("a")
        assert client.connack.get(raw.MAXIMUM_PACKET_SIZE) == 1000
        topic = lab.topic("t")
        await client.subscribe((topic, 0))
        fits = bytes(1000 - len(raw.publish(topic, bytes(500))) + 500)
        await client.send(raw.publish(topic, fits))
        await client.expect_publish(topic, fits)
        # Judged by the length it claims, before its bytes are there.
        await client.send(raw.publish(topic, fits + b"x")[:10])
        await client.expect_disconnect(0x95)


@shows("MQTT-3.12.4-1")
async def test_pingreq_is_answered_by_pingresp(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.PINGREQ * 3)
    await client.expect(raw.PINGRESP, raw.PINGRESP, raw.PINGRESP)


@shows("MQTT-4.2.0-1")
async def test_packets_in_any_pieces(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.send_drip(raw.subscribe(7, (topic, 1)) + raw.publish(topic, b"x", qos=1, packet_id=9))
    await client.expect_type(raw.SUBACK)
    await client.take_publish(topic, b"x", qos=1)
    assert (await client.expect_type(raw.PUBACK)).packet_id == 9


@shows("MQTT-4.13.1-1", "MQTT-3.1.4-1")
async def test_connects_that_claim_230_mb_are_turned_down_by_their_length(lab: Lab) -> None:
    clients = [await lab.wire() for _ in range(14)]
    for client in clients:
        await client.send(b"\x10" + raw.varint(230_000_000) + raw.binary("MQTT") + b"\x05\x02")
    for client in clients:
        await refused(client, 0x95)


@shows("MQTT-3.1.4-5")
async def test_a_connect_with_thousands_of_user_properties(lab: Lab) -> None:
    await lab.client("a", properties=raw.user_property("name", "value") * 4000)
