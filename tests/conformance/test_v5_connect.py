"""MQTT 5.0, CONNECT and CONNACK (3.1, 3.2): versions, flags, client ids, what the answer says."""

from typing import Any

import pytest

from tests.conformance import raw
from tests.conformance.lab import Lab, laboratory, refused
from tests.conformance.raw import Will
from tests.conformance.statements import shows

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82


@shows("MQTT-3.1.4-5", "MQTT-3.2.0-1", "MQTT-3.2.2-1", "MQTT-3.2.2-2", "MQTT-3.2.2-8", "MQTT-4.2.0-1")
async def test_connect_is_answered_by_connack(lab: Lab) -> None:
    client = await lab.client("a")
    assert client.connack.data[2:4] == bytes.fromhex("0000")
    await client.ping()


@shows("MQTT-3.2.0-1", "MQTT-3.2.0-2")
async def test_one_connack_before_all_else_even_when_the_client_does_not_wait(lab: Lab) -> None:
    client = await lab.wire()
    topic = lab.topic("t")
    await client.send(raw.connect(lab.id("a")), raw.subscribe(1, (topic, 0)), raw.publish(topic, b"x"), raw.PINGREQ)
    await client.expect_type(raw.CONNACK)
    await client.expect_type(raw.SUBACK)
    await client.expect_publish(topic, b"x")
    await client.expect(raw.PINGRESP)
    await client.expect_nothing()


@shows("MQTT-3.1.4-5", "MQTT-3.2.0-1", "MQTT-3.3.4-1", "MQTT-4.5.0-1")
async def test_a_client_that_says_all_it_has_to_say_at_once(lab: Lab) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe((lab.topic("#"), 0))
    client = await lab.wire()
    topic = lab.topic("t")
    will = Will(lab.topic("will"))
    await client.send(
        raw.connect(lab.id("a"), will=will),
        raw.publish(topic, b"1"),
        raw.publish(topic, b"2", qos=1, packet_id=7),
        raw.disconnect(),
    )
    await client.expect_type(raw.CONNACK)
    assert (await client.expect_type(raw.PUBACK)).packet_id == 7
    await client.expect_close()
    await watcher.expect_publish(topic, b"1")
    await watcher.expect_publish(topic, b"2")
    await watcher.expect_nothing()


@shows("MQTT-3.1.4-5", "MQTT-3.2.0-1", "MQTT-4.13.1-1", "MQTT-3.14.0-1")
async def test_connack_comes_before_the_disconnect_for_what_follows_connect(lab: Lab) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a")), "00 00")
    await client.expect_type(raw.CONNACK)
    await client.expect_disconnect(MALFORMED, PROTOCOL_ERROR)


@shows("MQTT-3.1.0-1")
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(raw.PINGREQ, id="pingreq"),
        pytest.param(raw.publish("a", b"x"), id="publish"),
        pytest.param(raw.subscribe(1, ("a", 0)), id="subscribe"),
        pytest.param(raw.disconnect(), id="disconnect"),
        pytest.param(raw.auth(0x18, raw.authentication_method("x")), id="auth"),
        pytest.param(bytes.fromhex("30ffffff7f"), id="a-length-of-256-MB"),
        pytest.param(bytes.fromhex("20"), id="connack-without-its-length"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
    ],
)
async def test_a_first_packet_that_is_no_connect_closes_at_once(lab: Lab, first: bytes) -> None:
    client = await lab.wire()
    await client.send(first)
    await client.expect_close()


@shows("MQTT-3.1.0-2", "MQTT-4.13.1-1")
async def test_a_second_connect_is_a_protocol_error(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.connect(lab.id("a")))
    await client.expect_disconnect(PROTOCOL_ERROR)


@shows("MQTT-3.1.2-1")
@pytest.mark.parametrize("name", ["mqtt", "MQTTX", "MQT", "", "AMQP"])
async def test_another_protocol_name(lab: Lab, name: str) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), name=name))
    await refused(client, 0x84)


@shows("MQTT-3.1.2-2")
@pytest.mark.parametrize("level", [0, 1, 2, 6, 7, 0x7F, 0xFF])
async def test_another_protocol_version(lab: Lab, level: int) -> None:
    client = await lab.wire()
    header = raw.binary("MQTT") + bytes([level, 2]) + raw.u16(0)
    await client.send(raw.packet(raw.CONNECT, header, b"\0", raw.binary(lab.id("a"))))
    # In a 3.x client's words or a 5.0 client's: nobody can know which it reads.
    data = await client.rest()
    assert data in (b"", bytes.fromhex("20020001"), bytes.fromhex("2003008400")), data.hex(" ")


@shows("MQTT-3.1.2-3")
async def test_the_reserved_connect_flag(lab: Lab) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), flags=0x03))
    await refused(client, MALFORMED)


@shows("MQTT-3.1.2-11")
@pytest.mark.parametrize("flags", [0x0A, 0x12, 0x1A])
async def test_a_will_qos_without_a_will(lab: Lab, flags: int) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), flags=flags))
    await refused(client, MALFORMED, PROTOCOL_ERROR)


@shows("MQTT-3.1.2-12")
async def test_will_qos_3(lab: Lab) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), will=Will("w", qos=3)))
    await refused(client, MALFORMED)


@shows("MQTT-3.1.2-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_will_qos_0_to_2(lab: Lab, qos: int) -> None:
    await lab.client("a", will=Will(lab.topic("w"), qos=qos))


@shows("MQTT-3.1.2-13")
async def test_will_retain_without_a_will(lab: Lab) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), flags=0x22))
    await refused(client, MALFORMED, PROTOCOL_ERROR)


@shows("MQTT-3.1.2-9", "MQTT-3.1.2-17", "MQTT-3.1.2-19", "MQTT-3.1.4-1")
@pytest.mark.parametrize(
    "flags",
    [pytest.param(0x06, id="will"), pytest.param(0x82, id="username"), pytest.param(0x42, id="password")],
)
async def test_a_flag_whose_field_is_missing(lab: Lab, flags: int) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), flags=flags))
    await refused(client, MALFORMED)


@shows("MQTT-3.1.2-16", "MQTT-3.1.2-18", "MQTT-3.1.4-1")
@pytest.mark.parametrize(
    "fields",
    [pytest.param({"username": "u"}, id="username"), pytest.param({"password": "p"}, id="password")],
)
async def test_a_field_whose_flag_is_missing(lab: Lab, fields: dict[str, Any]) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), flags=0x02, **fields))
    await refused(client, MALFORMED)


@shows("MQTT-3.1.2-17", "MQTT-3.1.2-19")
async def test_a_user_name_and_a_password_without_a_user_name_are_taken(lab: Lab) -> None:
    await lab.client("a", username="u")
    await lab.client("b", password="p")
    await lab.client("c", username="u", password="p")


@shows("MQTT-3.1.3-1", "MQTT-3.1.3-3")
async def test_the_payload_in_its_order(lab: Lab) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe(lab.topic("#"))
    client = await lab.client("a", will=Will(lab.topic("will"), b"bye", 1), username="u", password="p")
    await client.abort()
    await watcher.take_publish(lab.topic("will"), b"bye", qos=1)


@shows("MQTT-3.1.3-3", "MQTT-3.1.4-1")
async def test_a_connect_without_a_payload(lab: Lab) -> None:
    client = await lab.wire()
    await client.send(raw.packet(raw.CONNECT, raw.binary("MQTT"), b"\x05\x02", raw.u16(0), b"\0"))
    await refused(client, MALFORMED)


@shows("MQTT-3.1.4-1", "MQTT-4.13.1-1", "MQTT-2.1.3-1")
@pytest.mark.parametrize("first", range(0x11, 0x20))
async def test_flags_of_the_connect_header(lab: Lab, first: int) -> None:
    client = await lab.wire()
    await client.send(bytes([first]), raw.connect(lab.id("a"))[1:])
    await refused(client, MALFORMED)


@shows("MQTT-3.1.4-1")
@pytest.mark.parametrize("cut", [1, 5, 9, 10, 11, 12])
async def test_a_connect_cut_short(lab: Lab, cut: int) -> None:
    client = await lab.wire()
    body = raw.connect(lab.id("a"))[2:]
    await client.send(raw.packet(raw.CONNECT, body[:cut]))
    await refused(client, MALFORMED)


@shows("MQTT-3.1.4-1", "MQTT-3.2.2-6", "MQTT-3.2.2-7", "MQTT-3.2.2-8", "MQTT-4.13.2-1")
@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(raw.receive_maximum(0), id="receive-maximum-0"),
        pytest.param(raw.maximum_packet_size(0), id="maximum-packet-size-0"),
        pytest.param(raw.request_problem_information(2), id="request-problem-information-2"),
        pytest.param(raw.request_response_information(2), id="request-response-information-2"),
        pytest.param(raw.authentication_data(b"x"), id="data-without-a-method"),
        pytest.param(raw.session_expiry(1) * 2, id="session-expiry-twice"),
        pytest.param(raw.receive_maximum(9) * 2, id="receive-maximum-twice"),
        pytest.param(raw.topic_alias_maximum(9) * 2, id="topic-alias-maximum-twice"),
        pytest.param(raw.maximum_packet_size(99) * 2, id="maximum-packet-size-twice"),
    ],
)
async def test_a_connect_property_that_is_a_protocol_error(lab: Lab, properties: bytes) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), properties=properties))
    await refused(client, PROTOCOL_ERROR)


@shows("MQTT-3.1.4-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(raw.topic_alias(1), id="topic-alias"),
        pytest.param(raw.message_expiry(1), id="message-expiry"),
        pytest.param(raw.will_delay(1), id="will-delay-outside-the-will"),
        pytest.param(raw.subscription_identifier(1), id="subscription-identifier"),
        pytest.param(bytes.fromhex("2001"), id="unknown"),
        pytest.param(bytes.fromhex("00"), id="number-0"),
    ],
)
async def test_a_property_that_connect_cannot_have(lab: Lab, properties: bytes) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), properties=properties))
    await refused(client, MALFORMED, PROTOCOL_ERROR)


@shows("MQTT-3.1.4-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(raw.will_delay(1) * 2, id="will-delay-twice"),
        pytest.param(raw.payload_format(2), id="payload-format-2"),
        pytest.param(raw.content_type("a") * 2, id="content-type-twice"),
        pytest.param(raw.session_expiry(1), id="session-expiry"),
        pytest.param(raw.topic_alias(1), id="topic-alias"),
    ],
)
async def test_will_properties_that_are_wrong(lab: Lab, properties: bytes) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), will=Will(lab.topic("w"), properties=properties)))
    await refused(client, MALFORMED, PROTOCOL_ERROR)


@shows("MQTT-3.1.3-11", "MQTT-4.7.0-1", "MQTT-4.7.3-1")
@pytest.mark.parametrize("topic", ["a/#", "a/+/b", ""])
async def test_a_will_topic_that_is_no_topic_name(lab: Lab, topic: str) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), will=Will(topic)))
    await refused(client, MALFORMED, PROTOCOL_ERROR)


BAD_STRINGS = [
    pytest.param(b"\xff", id="no-utf8"),
    pytest.param(b"a\xc0\xafb", id="overlong"),
    pytest.param(b"\xed\xa0\x80", id="surrogate"),
    pytest.param(b"\xf4\x90\x80\x80", id="above-10FFFF"),
    pytest.param(b"a\x00b", id="nul"),
    pytest.param(b"\xe2\x82", id="cut"),
]


@shows("MQTT-1.5.4-1", "MQTT-1.5.4-2", "MQTT-3.1.3-4", "MQTT-3.1.3-11", "MQTT-3.1.3-12", "MQTT-1.5.7-1")
@pytest.mark.parametrize("place", ["client-id", "will-topic", "username", "user-property", "will-property"])
@pytest.mark.parametrize("text", BAD_STRINGS)
async def test_strings_of_a_connect_that_are_not_utf8(lab: Lab, place: str, text: bytes) -> None:
    client = await lab.wire()
    name = lab.id("a")
    connects = {
        "client-id": lambda: raw.connect(text),
        "will-topic": lambda: raw.connect(name, will=Will(text)),
        "username": lambda: raw.connect(name, username=text),
        "user-property": lambda: raw.connect(name, properties=raw.user_property("a", text)),
        "will-property": lambda: raw.connect(name, will=Will("w", properties=raw.content_type(text))),
    }
    await client.send(connects[place]())
    await refused(client, MALFORMED, 0x85, 0x90)


@shows("MQTT-3.1.3-5")
@pytest.mark.parametrize(
    "client_id",
    ["0", "abcdefghijklmnopqrstuvw", "ABCDEFGHIJKLMNOPQRSTUVW", "XYZxyz0123456789"],
)
async def test_client_ids_that_must_be_allowed(lab: Lab, client_id: str) -> None:
    client = await lab.wire()
    await client.connect(client_id)


@shows("MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16")
async def test_an_empty_client_id_is_replaced(lab: Lab) -> None:
    one, two = await lab.wire(), await lab.wire()
    first, second = await one.connect(""), await two.connect("")
    names = {first.get(raw.ASSIGNED_CLIENT_ID), second.get(raw.ASSIGNED_CLIENT_ID)}
    assert len(names) == 2
    assert all(isinstance(name, str) and name for name in names)
    await one.ping()


@shows("MQTT-3.1.3-7", "MQTT-3.1.3-2")
async def test_an_assigned_client_id_is_as_good_as_the_clients_own(lab: Lab) -> None:
    client = await lab.wire()
    connack = await client.connect("", properties=raw.session_expiry(100))
    name = connack.get(raw.ASSIGNED_CLIENT_ID)
    assert isinstance(name, str)
    await client.disconnect()
    again = await lab.wire()
    assert (await again.connect(name, clean=False)).session_present


@shows("MQTT-3.1.3-6", "MQTT-3.1.3-7")
async def test_an_empty_client_id_with_clean_start_0(lab: Lab) -> None:
    client = await lab.wire()
    connack = await client.connect("", clean=False)
    assert connack.get(raw.ASSIGNED_CLIENT_ID)
    assert not connack.session_present


@shows("MQTT-3.1.3-7")
async def test_no_client_id_is_assigned_to_a_client_that_has_one(lab: Lab) -> None:
    client = await lab.client("a")
    assert client.connack.get(raw.ASSIGNED_CLIENT_ID) is None


@shows("MQTT-3.1.3-8", "MQTT-3.1.4-2", "MQTT-3.2.2-7")
async def test_a_client_id_that_is_refused() -> None:
    async with laboratory(mqtt={"allow_empty_client_id": False}) as lab:
        client = await lab.wire()
        await client.send(raw.connect(""))
        await refused(client, 0x85)


@shows("MQTT-3.1.2-28")
@pytest.mark.parametrize("properties", [b"", raw.request_response_information(0)])
async def test_no_response_information_unless_asked_for(lab: Lab, properties: bytes) -> None:
    client = await lab.client("a", properties=properties)
    assert client.connack.get(raw.RESPONSE_INFORMATION) is None


@shows("MQTT-3.1.2-28")
async def test_response_information_for_those_who_ask() -> None:
    async with laboratory(mqtt={"response_information": "answers/"}) as lab:
        for name, asked, told in (("a", 1, "answers/"), ("b", 0, None)):
            client = await lab.client(name, properties=raw.request_response_information(asked))
            assert client.connack.get(raw.RESPONSE_INFORMATION) == told


@shows("MQTT-3.2.2-9", "MQTT-3.2.2-10")
@pytest.mark.parametrize("maximum", [0, 1])
async def test_a_broker_short_of_qos_says_so_and_takes_subscriptions_of_all(maximum: int) -> None:
    async with laboratory(mqtt={"max_qos": maximum}) as lab:
        client = await lab.client("a")
        assert client.connack.get(raw.MAXIMUM_QOS) == maximum
        reasons = await client.subscribe(*((lab.topic(str(qos)), qos) for qos in (0, 1, 2)))
        assert all(reason in (0, 1, 2) for reason in reasons)
        # And a PUBLISH above it is refused.
        await client.send(raw.publish(lab.topic("t"), qos=maximum + 1, packet_id=1))
        await client.expect_disconnect(0x9B)


@shows("MQTT-3.2.2-9")
async def test_a_broker_of_all_qos_sends_no_maximum_qos(lab: Lab) -> None:
    client = await lab.client("a")
    assert client.connack.get(raw.MAXIMUM_QOS) is None


@shows("MQTT-3.2.2-12")
async def test_a_will_of_a_qos_that_the_broker_lacks() -> None:
    async with laboratory(mqtt={"max_qos": 1}) as lab:
        client = await lab.wire()
        await client.send(raw.connect(lab.id("a"), will=Will(lab.topic("w"), qos=2)))
        await refused(client, 0x9B)


@shows("MQTT-3.2.2-13")
async def test_a_retained_will_where_nothing_is_retained() -> None:
    async with laboratory(mqtt={"retain_available": False}) as lab:
        client = await lab.client("a")
        assert client.connack.get(raw.RETAIN_AVAILABLE) == 0
        await client.send(raw.publish(lab.topic("t"), b"x", retain=True))
        await client.expect_disconnect(0x9A)
        client = await lab.wire()
        await client.send(raw.connect(lab.id("b"), will=Will(lab.topic("w"), retain=True)))
        await refused(client, 0x9A)


@shows("MQTT-3.1.4-6")
async def test_what_follows_a_refused_connect_is_not_processed(lab: Lab) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe(lab.topic("#"))
    client = await lab.wire()
    method = raw.authentication_method("no such method")
    await client.send(raw.connect(lab.id("a"), properties=method), raw.publish(lab.topic("t"), b"x"))
    await refused(client, 0x8C, 0x87)
    await watcher.expect_nothing()


@shows("MQTT-3.2.2-19", "MQTT-3.2.2-20", "MQTT-3.1.2-24")
async def test_a_refusal_fits_into_the_clients_maximum_packet_size(lab: Lab) -> None:
    client = await lab.wire()
    properties = raw.maximum_packet_size(5) + raw.authentication_method("no such method")
    await client.send(raw.connect(lab.id("a"), properties=properties))
    connack = await refused(client, 0x8C, 0x87)
    assert connack is None or len(connack.data) <= 5


@shows("MQTT-3.1.2-24", "MQTT-3.2.2-19", "MQTT-3.2.2-20")
@pytest.mark.parametrize("size", [1, 4, 5, 10, 15, 30, 100])
@pytest.mark.parametrize("own_id", [True, False])
async def test_a_connack_fits_into_the_clients_maximum_packet_size(lab: Lab, size: int, own_id: bool) -> None:
    """What CONNACK has to tell may not fit: then the client cannot be served."""
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a") if own_id else "", properties=raw.maximum_packet_size(size)))
    try:
        connack = await client.expect_type(raw.CONNACK)
    except AssertionError:
        assert size < 5, "there is room to say why"
    else:
        assert len(connack.data) <= size
        assert connack.reason in (0, 0x95)


@shows("MQTT-3.1.3-2")
async def test_client_ids_are_told_apart_by_every_byte(lab: Lab) -> None:
    for name in ("a", "A", "á", "a\u0301", "a "):
        assert not (await lab.client(name, clean=False, properties=raw.session_expiry(100))).connack.session_present


@shows("MQTT-3.1.4-3", "MQTT-3.1.3-2", "MQTT-4.13.2-1", "MQTT-3.14.4-2")
async def test_a_client_id_in_use_is_taken_over(lab: Lab) -> None:
    old = await lab.client("a")
    new = await lab.client("a")
    await old.expect_disconnect(0x8E)
    await new.ping()


@shows("MQTT-3.1.4-2", "MQTT-3.1.4-6")
async def test_a_refused_connect_leaves_the_session_with_its_client_id_alone(lab: Lab) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe(lab.topic("#"))
    live = await lab.client("a", will=Will(lab.topic("will")))
    other = await lab.wire()
    await other.send(raw.connect(lab.id("a"), properties=raw.authentication_method("no such method")))
    await refused(other, 0x8C, 0x87)
    await live.ping()
    await watcher.expect_nothing(after=live)


@shows("MQTT-3.1.4-1")
async def test_a_connect_that_comes_byte_by_byte(lab: Lab) -> None:
    client = await lab.wire()
    await client.send_drip(raw.connect(lab.id("a"), properties=raw.user_property("k", "v")))
    await client.expect_type(raw.CONNACK)
    await client.ping()


@shows("MQTT-3.1.2-2", "MQTT3-3.1.2-2")
async def test_a_listener_that_does_not_take_all_versions() -> None:
    names = {3: "3.1", 4: "3.1.1", 5: "5.0"}
    for taken, name in names.items():
        async with laboratory(listeners=[{"url": "tcp://127.0.0.1:0", "versions": [name]}]) as lab:
            for version in names:
                client = await lab.wire(version=version)
                await client.send(raw.connect("a", version=version))
                if version == taken:
                    assert (await client.expect_type(raw.CONNACK)).reason == 0
                else:
                    connack = await refused(client, 0x84 if version == 5 else 1)
                    assert connack is not None
