"""MQTT 3.1.1, packets, CONNECT, sessions and wills (1.5, 2, 3.1, 3.2, 3.12, 3.14); and 3.1 clients."""

from typing import Any

import pytest

from tests.conformance import raw
from tests.conformance.lab import Lab, laboratory, refused
from tests.conformance.raw import Will
from tests.conformance.statements import shows

V311 = 4
V31 = 3


@shows("MQTT3-3.1.4-4", "MQTT3-3.2.0-1", "MQTT3-3.2.2-1", "MQTT3-7.0.0-2", "MQTT3-7.1.1-1")
async def test_connect_is_answered_by_connack(lab: Lab) -> None:
    client = await lab.wire(version=V311)
    await client.send(raw.connect(lab.id("a"), version=V311))
    await client.expect("20 02 00 00")


@shows("MQTT3-3.12.4-1")
async def test_pingreq_is_answered_by_pingresp(lab: Lab) -> None:
    client = await lab.client("a", version=V311)
    await client.send("c0 00")
    await client.expect("d0 00")


@shows("MQTT3-3.2.0-1")
async def test_the_first_packet_is_connack_even_when_the_client_does_not_wait(lab: Lab) -> None:
    client = await lab.wire(version=V311)
    topic = lab.topic("t")
    await client.send(
        raw.connect(lab.id("a"), version=V311),
        raw.subscribe(1, (topic, 0), version=V311),
        raw.publish(topic, b"x", version=V311),
    )
    await client.expect("20 02 00 00", "90 03 00 01 00", raw.publish(topic, b"x", version=V311))


@shows("MQTT3-3.1.4-4", "MQTT3-3.2.0-1", "MQTT3-4.5.0-1")
async def test_a_client_that_says_all_it_has_to_say_at_once(lab: Lab) -> None:
    watcher = await lab.client("w", version=V311)
    await watcher.subscribe((lab.topic("t"), 0))
    client = await lab.wire(version=V311)
    await client.send(
        raw.connect(lab.id("a"), version=V311),
        raw.publish(lab.topic("t"), b"1", qos=1, packet_id=7, version=V311),
        raw.disconnect(),
    )
    await client.expect("20 02 00 00", "40 02 00 07")
    await client.expect_close()
    await watcher.expect_publish(lab.topic("t"), b"1")


@shows("MQTT3-3.1.0-1", "MQTT3-4.8.0-1")
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(raw.PINGREQ, id="pingreq"),
        pytest.param(raw.publish("a", b"x", version=V311), id="publish"),
        pytest.param(raw.subscribe(1, ("a", 0), version=V311), id="subscribe"),
        pytest.param("e0 00", id="disconnect"),
    ],
)
async def test_a_first_packet_that_is_no_connect_closes(lab: Lab, first: bytes | str) -> None:
    client = await lab.wire(version=V311)
    await client.send(first)
    await client.expect_close()


@shows("MQTT3-3.1.0-2", "MQTT3-4.8.0-1")
async def test_a_second_connect_closes(lab: Lab) -> None:
    client = await lab.client("a", version=V311)
    await client.send(raw.connect(lab.id("a"), version=V311))
    await client.expect_close()


@shows("MQTT3-3.1.2-1")
@pytest.mark.parametrize("name", ["mqtt", "MQTTX", "MQIsdp", ""])
async def test_another_protocol_name(lab: Lab, name: str) -> None:
    client = await lab.wire(version=V311)
    await client.send(raw.connect(lab.id("a"), version=V311, name=name))
    await refused(client, 1)


@shows("MQTT3-3.1.2-2", "MQTT3-3.2.2-4", "MQTT3-3.2.2-5")
@pytest.mark.parametrize("level", [0, 1, 2])
async def test_a_protocol_level_below_all(lab: Lab, level: int) -> None:
    client = await lab.wire(version=V311)
    header = raw.binary("MQTT") + bytes([level, 2]) + raw.u16(0)
    await client.send(raw.packet(raw.CONNECT, header, raw.binary(lab.id("a"))))
    await client.expect("20 02 00 01")
    await client.expect_close()


@shows("MQTT3-3.1.2-3", "MQTT3-3.1.4-1")
async def test_the_reserved_connect_flag(lab: Lab) -> None:
    client = await lab.wire(version=V311)
    await client.send(raw.connect(lab.id("a"), version=V311, flags=0x03))
    await client.expect_close()


@shows("MQTT3-3.1.2-11", "MQTT3-3.1.2-13", "MQTT3-3.1.2-15", "MQTT3-3.1.2-14", "MQTT3-3.1.2-22", "MQTT3-3.1.4-1")
@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        pytest.param(0x0A, {}, id="will-qos-1-without-a-will"),
        pytest.param(0x12, {}, id="will-qos-2-without-a-will"),
        pytest.param(0x22, {}, id="will-retain-without-a-will"),
        pytest.param(0x02, {"will": Will("w")}, id="a-will-without-its-flag"),
        pytest.param(0x1E, {"will": Will("w")}, id="will-qos-3"),
        pytest.param(0x42, {"password": "p"}, id="a-password-without-a-user-name"),
    ],
)
async def test_connect_flags_that_are_wrong(lab: Lab, flags: int, fields: dict[str, Any]) -> None:
    client = await lab.wire(version=V311)
    await client.send(raw.connect(lab.id("a"), version=V311, flags=flags, **fields))
    await client.expect_close()


@shows("MQTT3-3.1.2-9", "MQTT3-3.1.2-19", "MQTT3-3.1.2-21", "MQTT3-3.1.3-3", "MQTT3-3.1.4-1")
@pytest.mark.parametrize(
    "flags",
    [pytest.param(0x06, id="will"), pytest.param(0x82, id="username"), pytest.param(0xC2, id="both")],
)
async def test_a_flag_whose_field_is_missing(lab: Lab, flags: int) -> None:
    client = await lab.wire(version=V311)
    await client.send(raw.connect(lab.id("a"), version=V311, flags=flags))
    await client.expect_close()


@shows("MQTT3-3.1.2-18", "MQTT3-3.1.2-20", "MQTT3-3.1.4-1")
@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        pytest.param(0x02, {"username": "u"}, id="username"),
        pytest.param(0x82, {"username": "u", "password": "p"}, id="password"),
    ],
)
async def test_a_field_whose_flag_is_missing(lab: Lab, flags: int, fields: dict[str, Any]) -> None:
    client = await lab.wire(version=V311)
    await client.send(raw.connect(lab.id("a"), version=V311, flags=flags, **fields))
    await client.expect_close()


@shows("MQTT3-3.1.3-3", "MQTT3-3.1.4-1")
async def test_a_connect_without_a_payload(lab: Lab) -> None:
    client = await lab.wire(version=V311)
    await client.send("10 0a 00 04 4d 51 54 54 04 02 00 00")
    await client.expect_close()


@shows("MQTT3-3.1.3-1", "MQTT3-3.1.2-19", "MQTT3-3.1.2-21", "MQTT3-3.1.2-9")
async def test_the_payload_in_its_order(lab: Lab) -> None:
    watcher = await lab.client("w", version=V311)
    await watcher.subscribe((lab.topic("will"), 0))
    client = await lab.client("a", version=V311, will=Will(lab.topic("will"), b"bye"), username="u", password="p")
    await client.abort()
    await watcher.expect_publish(lab.topic("will"), b"bye")


BAD_STRINGS = [
    pytest.param(b"\xff", id="no-utf8"),
    pytest.param(b"\xc0\xaf", id="overlong"),
    pytest.param(b"a\xed\xa0\x80", id="surrogate"),
    pytest.param(b"a\x00b", id="nul"),
]


@shows("MQTT3-1.5.3-1", "MQTT3-1.5.3-2", "MQTT3-3.1.3-4", "MQTT3-3.1.3-10", "MQTT3-3.1.3-11")
@pytest.mark.parametrize("place", ["client-id", "will-topic", "username"])
@pytest.mark.parametrize("text", BAD_STRINGS)
async def test_strings_of_a_connect_that_are_not_utf8(lab: Lab, place: str, text: bytes) -> None:
    client = await lab.wire(version=V311)
    name = lab.id("a")
    connects = {
        "client-id": lambda: raw.connect(text, version=V311),
        "will-topic": lambda: raw.connect(name, version=V311, will=Will(text)),
        "username": lambda: raw.connect(name, version=V311, username=text),
    }
    await client.send(connects[place]())
    await refused(client, 2)


@shows(
    "MQTT3-1.5.3-1",
    "MQTT3-1.5.3-2",
    "MQTT3-3.3.2-1",
    "MQTT3-3.8.3-1",
    "MQTT3-3.10.3-1",
    "MQTT3-4.7.3-2",
)
@pytest.mark.parametrize("place", ["publish", "subscribe", "unsubscribe"])
@pytest.mark.parametrize("text", BAD_STRINGS)
async def test_topics_that_are_not_utf8(lab: Lab, place: str, text: bytes) -> None:
    client = await lab.client("a", version=V311)
    packets = {
        "publish": lambda: raw.publish(text, version=V311),
        "subscribe": lambda: raw.subscribe(1, (text, 0), version=V311),
        "unsubscribe": lambda: raw.unsubscribe(1, text, version=V311),
    }
    await client.send(packets[place]())
    await client.expect_close()


@shows("MQTT3-1.5.3-3", "MQTT3-4.7.3-4")
@pytest.mark.parametrize("text", ["\ufeff", "a\ufeff", "é", "e\u0301", " ", "𝄞"])
async def test_topics_are_passed_on_byte_by_byte(lab: Lab, text: str) -> None:
    client = await lab.client("a", version=V311)
    packet = raw.publish(lab.topic(text), b"x", version=V311)
    await client.subscribe((lab.topic(text), 0))
    await client.send(packet)
    await client.expect(packet)


@shows("MQTT3-2.2.2-1", "MQTT3-2.2.2-2", "MQTT3-3.6.1-1", "MQTT3-3.8.1-1", "MQTT3-3.10.1-1", "MQTT3-3.14.1-1")
@pytest.mark.parametrize(
    ("packet", "flags"),
    [
        pytest.param(packet, flags, id=f"{name}-{flags:04b}")
        for name, packet, right in [
            ("puback", raw.ack(raw.PUBACK, 1), 0),
            ("pubrec", raw.ack(raw.PUBREC, 1), 0),
            ("pubrel", raw.ack(raw.PUBREL, 1), 2),
            ("pubcomp", raw.ack(raw.PUBCOMP, 1), 0),
            ("subscribe", raw.subscribe(1, ("a", 0), version=V311), 2),
            ("unsubscribe", raw.unsubscribe(1, "a", version=V311), 2),
            ("pingreq", raw.PINGREQ, 0),
            ("disconnect", raw.disconnect(), 0),
        ]
        for flags in (0, 1, 2, 8, 15)
        if flags != right
    ],
)
async def test_reserved_flags_of_the_fixed_header(lab: Lab, packet: bytes, flags: int) -> None:
    client = await lab.client("a", version=V311)
    await client.send(bytes([packet[0] & 0xF0 | flags]) + packet[1:])
    await client.expect_close()


@shows("MQTT3-4.8.0-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param("00 00", id="type-0"),
        pytest.param("f0 00", id="type-15"),
        pytest.param("20 02 00 00", id="connack"),
        pytest.param("90 03 00 01 00", id="suback"),
        pytest.param("b0 02 00 01", id="unsuback"),
        pytest.param("d0 00", id="pingresp"),
        pytest.param("30 00", id="publish-empty"),
        pytest.param("30 03 00 05 61", id="publish-topic-cut"),
        pytest.param("32 03 00 01 61", id="publish-without-a-packet-id"),
        pytest.param("40 01 00", id="puback-cut"),
        pytest.param("40 03 00 01 00", id="puback-of-5.0"),
        pytest.param("c0 01 00", id="pingreq-with-a-body"),
        pytest.param("e0 01 00", id="disconnect-of-5.0"),
        pytest.param("c0 ff ff ff ff 7f", id="length-of-five-bytes"),
    ],
)
async def test_packets_that_are_none(lab: Lab, packet: str) -> None:
    client = await lab.client("a", version=V311)
    await client.send(packet)
    await client.expect_close()


@shows("MQTT3-4.8.0-2")
async def test_a_packet_above_the_brokers_maximum_closes() -> None:
    async with laboratory(mqtt={"max_packet_size": 1000}) as lab:
        client = await lab.client("a", version=V311)
        await client.send(raw.publish(lab.topic("t"), bytes(1000), version=V311)[:50])
        await client.expect_close()


# Client ids


@shows("MQTT3-3.1.3-5")
@pytest.mark.parametrize("client_id", ["0", "abcdefghijklmnopqrstuv3", "ABCDEFGHIJKLMNOPQRSTUV3", "XYZxyz012345673"])
async def test_client_ids_that_must_be_allowed(lab: Lab, client_id: str) -> None:
    client = await lab.wire(version=V311)
    await client.connect(client_id)


@shows("MQTT3-3.1.3-6")
async def test_an_empty_client_id_is_replaced(lab: Lab) -> None:
    clients = [await lab.wire(version=V311) for _ in range(3)]
    for client in clients:
        await client.connect("")
    for client in clients:
        await client.ping()


@shows("MQTT3-3.1.3-7", "MQTT3-3.1.3-8", "MQTT3-3.2.2-4", "MQTT3-3.2.2-5")
async def test_an_empty_client_id_with_clean_session_0(lab: Lab) -> None:
    client = await lab.wire(version=V311)
    await client.send(raw.connect("", version=V311, clean=False))
    await client.expect("20 02 00 02")
    await client.expect_close()


@shows("MQTT3-3.1.3-9", "MQTT3-3.2.2-5")
async def test_a_client_id_that_is_refused() -> None:
    async with laboratory(mqtt={"allow_empty_client_id": False}) as lab:
        client = await lab.wire(version=V311)
        await client.send(raw.connect("", version=V311))
        await client.expect("20 02 00 02")
        await client.expect_close()


@shows("MQTT3-3.1.4-5")
async def test_what_follows_a_refused_connect_is_not_processed(lab: Lab) -> None:
    watcher = await lab.client("w", version=V311)
    await watcher.subscribe(lab.topic("#"))
    client = await lab.wire(version=V311)
    await client.send(
        raw.connect("", version=V311, clean=False), raw.publish(lab.topic("t"), b"x", version=V311), raw.PINGREQ
    )
    await client.expect("20 02 00 02")
    await client.expect_close()
    await watcher.expect_nothing()


@shows("MQTT3-3.2.2-6", "MQTT3-3.2.2-4")
async def test_a_refusal_without_a_return_code_closes_without_connack() -> None:
    async with laboratory(mqtt={"max_qos": 1}) as lab:
        client = await lab.wire(version=V311)
        await client.send(raw.connect(lab.id("a"), version=V311, will=Will(lab.topic("w"), qos=2)))
        data = await client.rest()
        assert data in (b"", bytes.fromhex("20020003"))


@shows("MQTT3-3.1.4-2", "MQTT3-3.1.3-2")
async def test_a_client_id_in_use_is_taken_over(lab: Lab) -> None:
    old = await lab.client("a", version=V311)
    new = await lab.client("a", version=V311)
    await old.expect_close()
    await new.ping()


@shows("MQTT3-3.1.4-2")
@pytest.mark.parametrize(("first", "second"), [(4, 5), (5, 4)])
async def test_a_client_id_in_use_is_taken_over_across_versions(lab: Lab, first: int, second: int) -> None:
    old = await lab.client("a", version=first)
    new = await lab.client("a", version=second)
    await old.expect_disconnect(0x8E)
    await new.ping()


# Sessions


@shows("MQTT3-3.1.2-4", "MQTT3-3.2.2-2", "MQTT3-3.2.2-3", "MQTT3-3.1.4-3", "MQTT3-4.1.0-1", "MQTT3-3.1.3-2")
async def test_clean_session_0_resumes_or_creates(lab: Lab) -> None:
    client = await lab.client("a", version=V311, clean=False)
    assert client.connack.data == bytes.fromhex("20020000")
    await client.subscribe((lab.topic("t"), 1))
    await client.disconnect()
    client = await lab.client("a", version=V311, clean=False)
    assert client.connack.data == bytes.fromhex("20020100")
    await client.publish(lab.topic("t"), b"x")
    await client.expect_publish(lab.topic("t"), b"x")


@shows("MQTT3-3.1.2-5", "MQTT3-4.1.0-1", "MQTT3-4.5.0-1")
@pytest.mark.parametrize("polite", [True, False])
async def test_a_stored_session_collects_messages(lab: Lab, polite: bool) -> None:
    client, publisher = await lab.client("a", version=V311, clean=False), await lab.client("p", version=V311)
    topic = lab.topic("t")
    await client.subscribe((topic, 2))
    if polite:
        await client.disconnect()
    else:
        await client.send("00 00")
        await client.rest()
    await publisher.publish(topic, b"1", qos=1)
    await publisher.publish(topic, b"2", qos=2)
    client = await lab.client("a", version=V311, clean=False)
    packets = [await client.expect_publish(topic, b"1", qos=1), await client.expect_publish(topic, b"2", qos=2)]
    for packet in packets:
        await client.acknowledge(packet)
    await client.expect_nothing()


@shows("MQTT3-3.1.2-6", "MQTT3-3.2.2-1", "MQTT3-3.1.4-3")
async def test_clean_session_1_throws_the_session_away_and_leaves_none(lab: Lab) -> None:
    client, publisher = await lab.client("a", version=V311, clean=False), await lab.client("p", version=V311)
    topic = lab.topic("t")
    await client.subscribe((topic, 1))
    await client.disconnect()
    await publisher.publish(topic, b"x", qos=1)
    client = await lab.client("a", version=V311, clean=True)
    assert not client.connack.session_present
    await publisher.publish(topic, b"x", qos=1)
    await client.expect_nothing()
    await client.subscribe((topic, 1))
    await client.disconnect()
    client = await lab.client("a", version=V311, clean=False)
    assert not client.connack.session_present
    await publisher.publish(topic, b"x", qos=1)
    await client.expect_nothing()


@shows("MQTT3-3.1.2-7")
async def test_retained_messages_outlive_the_session(lab: Lab) -> None:
    client = await lab.client("a", version=V311)
    await client.publish(lab.topic("t"), b"x", retain=True)
    await client.disconnect()
    client = await lab.client("a", version=V311)
    await client.subscribe((lab.topic("t"), 0))
    await client.expect_publish(lab.topic("t"), b"x")


@shows("MQTT3-4.1.0-2", "MQTT3-3.1.4-2")
@pytest.mark.parametrize("clean", [False, True])
async def test_a_session_lasts_as_long_as_its_connection(lab: Lab, clean: bool) -> None:
    client = await lab.client("a", version=V311, clean=clean)
    await client.subscribe((lab.topic("t"), 0))
    for _ in range(3):
        await client.publish(lab.topic("t"), b"x")
        await client.expect_publish(lab.topic("t"), b"x")


@shows("MQTT3-3.1.2-4", "MQTT3-3.1.2-5")
async def test_a_session_goes_from_one_version_to_the_other(lab: Lab) -> None:
    publisher = await lab.client("p")
    topic = lab.topic("t")
    client = await lab.client("a", version=V311, clean=False)
    await client.subscribe((topic, 1))
    await client.disconnect()
    await publisher.publish(topic, b"x", qos=1, properties=raw.user_property("a", "b"))
    client = await lab.client("a", version=5, clean=False, properties=raw.session_expiry(100))
    assert client.connack.session_present
    packet = await client.take_publish(topic, b"x", qos=1)
    assert packet.all(raw.USER_PROPERTY) == [("a", "b")]
    await client.disconnect()
    await publisher.publish(topic, b"y", qos=1, properties=raw.user_property("a", "b"))
    client = await lab.client("a", version=V311, clean=False)
    assert client.connack.session_present
    packet = await client.take_publish(topic, b"y", qos=1)
    assert packet.data == raw.publish(topic, b"y", qos=1, packet_id=packet.packet_id, version=V311)


# Wills


@shows("MQTT3-3.1.2-8", "MQTT3-3.1.2-10", "MQTT3-3.1.2-16", "MQTT3-3.1.2-17", "MQTT3-3.1.2-14")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
async def test_a_connection_that_breaks_publishes_the_will(lab: Lab, qos: int, retain: bool) -> None:
    watcher = await lab.client("w", version=V311)
    topic = lab.topic("will")
    await watcher.subscribe(topic)
    client = await lab.client("a", version=V311, will=Will(topic, b"gone", qos, retain))
    await client.abort()
    packet = await watcher.take_publish(topic, b"gone", qos=qos)
    assert not packet.retain
    later = await lab.client("later", version=V311)
    await later.subscribe(topic)
    if retain:
        assert (await later.take_publish(topic, b"gone", qos=qos)).retain
    await later.expect_nothing()
    await watcher.expect_nothing()


@shows("MQTT3-3.14.4-3", "MQTT3-3.1.2-8", "MQTT3-3.1.2-10")
async def test_disconnect_throws_the_will_away(lab: Lab) -> None:
    watcher = await lab.client("w", version=V311)
    await watcher.subscribe(lab.topic("will"))
    client = await lab.client("a", version=V311, will=Will(lab.topic("will")))
    await client.disconnect()
    await watcher.expect_nothing()


@shows("MQTT3-3.1.2-12")
async def test_no_will_is_published_where_there_was_none(lab: Lab) -> None:
    watcher = await lab.client("w", version=V311)
    await watcher.subscribe(lab.topic("will"))
    client = await lab.client("a", version=V311, clean=False, will=Will(lab.topic("will")))
    await client.disconnect()
    client = await lab.client("a", version=V311, clean=False)
    await client.send("00 00")
    await client.rest()
    await watcher.expect_nothing()


@shows("MQTT3-3.1.2-8", "MQTT3-3.1.4-2")
async def test_a_takeover_publishes_the_will(lab: Lab) -> None:
    watcher = await lab.client("w", version=V311)
    await watcher.subscribe((lab.topic("will"), 0))
    await lab.client("a", version=V311, will=Will(lab.topic("will")))
    await lab.client("a", version=V311)
    await watcher.expect_publish(lab.topic("will"), b"gone")


@shows("MQTT3-3.1.2-8")
async def test_a_protocol_violation_publishes_the_will(lab: Lab) -> None:
    watcher = await lab.client("w", version=V311)
    await watcher.subscribe((lab.topic("will"), 0))
    client = await lab.client("a", version=V311, will=Will(lab.topic("will")))
    await client.send("00 00")
    await client.rest()
    await watcher.expect_publish(lab.topic("will"), b"gone")


# MQTT 3.1


@shows("MQTT3-3.1.2-1", "MQTT3-3.1.2-2")
async def test_a_3_1_client_is_served(lab: Lab) -> None:
    client = await lab.wire(version=V31)
    await client.send(raw.connect(lab.id("a"), version=V31))
    await client.expect("20 02 00 00")
    topic = lab.topic("t")
    await client.send(raw.subscribe(1, (topic, 1), version=V31))
    await client.expect("90 03 00 01 01")
    await client.send(raw.publish(topic, b"x", qos=1, packet_id=5, version=V31))
    packet = await client.expect_publish(topic, b"x", qos=1)
    await client.acknowledge(packet)
    await client.expect("40 02 00 05")
    await client.send(raw.unsubscribe(2, topic, version=V31))
    await client.expect("b0 02 00 02")
    await client.send("e0 00")
    await client.expect_close()


@shows("MQTT3-3.1.2-2", "MQTT3-3.2.2-5")
@pytest.mark.parametrize("level", [2, 4, 5])
async def test_mqisdp_with_another_level(lab: Lab, level: int) -> None:
    client = await lab.wire(version=V31)
    header = raw.binary("MQIsdp") + bytes([level, 2]) + raw.u16(0)
    await client.send(raw.packet(raw.CONNECT, header, raw.binary(lab.id("a"))))
    await refused(client, 1)


@pytest.mark.parametrize("version", [V31, V311])
@pytest.mark.parametrize("bridge", [True, False])
async def test_a_bridge_sets_the_high_bit_of_its_level(lab: Lab, version: int, bridge: bool) -> None:
    """It gets none of its own messages back, and sees which ones are retained."""
    client, other = await lab.wire(version=version), await lab.client("other", version=V311)
    packet = raw.connect(lab.id("a"), version=version)
    if bridge:
        packet = packet.replace(bytes([version, 2]), bytes([version | 0x80, 2]), 1)
    await client.send(packet)
    await client.expect("20 02 00 00")
    topic = lab.topic("t")
    await client.subscribe((topic, 1), (f"$share/g/{lab.topic('shared')}", 1))
    await client.send(raw.publish(topic, b"mine", version=version))
    if not bridge:
        await client.expect_publish(topic, b"mine")
    for retain in (True, False):
        await other.publish(topic, b"x", qos=1, retain=retain)
        assert (await client.take_publish(topic, b"x", qos=1)).retain == (retain and bridge)
    await client.send(raw.publish(lab.topic("shared"), b"for one of us", version=version))
    await client.expect_publish(lab.topic("shared"), b"for one of us")
    await client.expect_nothing()
