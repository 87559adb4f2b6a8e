"""MQTT 5.0, PUBLISH (3.3): retained messages, properties passed on, topic aliases, delivery at the right QoS."""

import pytest

from tests.conformance import raw
from tests.conformance.lab import Lab, laboratory
from tests.conformance.statements import shows

PROTOCOL_ERROR = 0x82
ALIAS_INVALID = 0x94


@shows("MQTT-3.3.4-1", "MQTT-2.2.1-2", "MQTT-4.3.1-1")
async def test_a_qos_0_publish_is_not_answered(lab: Lab) -> None:
    client = await lab.client("a")
    await client.publish(lab.topic("t"), b"x")
    await client.expect_nothing()


@shows("MQTT-3.3.4-1", "MQTT-2.2.1-5", "MQTT-4.3.2-4", "MQTT-3.4.2-1")
async def test_a_qos_1_publish_is_answered_by_puback(lab: Lab) -> None:
    client = await lab.client("a")
    await client.subscribe((lab.topic("t"), 0))
    await client.send(raw.publish(lab.topic("t"), b"x", qos=1, packet_id=0xABCD))
    await client.expect_publish(lab.topic("t"), b"x")
    await client.expect("40 02 ab cd")


@shows("MQTT-3.3.4-1", "MQTT-2.2.1-5", "MQTT-4.3.3-8", "MQTT-4.3.3-11", "MQTT-3.5.2-1", "MQTT-3.7.2-1")
async def test_a_qos_2_publish_is_answered_by_pubrec_and_pubcomp(lab: Lab) -> None:
    client, other = await lab.client("a"), await lab.client("b")
    await other.subscribe((lab.topic("t"), 0))
    await client.send(raw.publish(lab.topic("t"), b"x", qos=2, packet_id=0xABCD))
    await client.expect("50 02 ab cd")
    await client.send(raw.ack(raw.PUBREL, 0xABCD))
    await client.expect("70 02 ab cd")
    await other.expect_publish(lab.topic("t"), b"x")


@shows("MQTT-3.4.2-1", "MQTT-3.5.2-1")
@pytest.mark.parametrize(("qos", "answer"), [(1, "40 03 00 07 10"), (2, "50 03 00 07 10")])
async def test_a_publish_that_nobody_subscribes_to(lab: Lab, qos: int, answer: str) -> None:
    client = await lab.client("a")
    await client.send(raw.publish(lab.topic("t"), b"x", qos=qos, packet_id=7))
    await client.expect(answer)


# Retained messages


@shows("MQTT-3.3.1-5", "MQTT-3.3.1-9", "MQTT-3.3.2-3")
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_retained_message_is_stored_and_sent_to_later_subscribers(lab: Lab, qos: int) -> None:
    client, later = await lab.client("a"), await lab.client("b")
    topic = lab.topic("t/1")
    await client.publish(topic, b"x", qos=qos, retain=True)
    await client.ping()
    await later.subscribe(lab.topic("+/1"))
    packet = await later.take_publish(topic, b"x", qos=qos)
    assert packet.retain
    assert not packet.dup


@shows("MQTT-3.3.1-5")
async def test_a_retained_message_replaces_the_last(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    for payload in (b"1", b"2", b"3"):
        await client.publish(topic, payload, retain=True)
    await client.subscribe(topic)
    await client.take_publish(topic, b"3")
    await client.expect_nothing()


@shows("MQTT-3.3.1-6", "MQTT-3.3.1-7")
async def test_an_empty_retained_message_removes(lab: Lab) -> None:
    client, watcher = await lab.client("a"), await lab.client("b")
    topic = lab.topic("t")
    await client.publish(topic, b"x", retain=True)
    await client.ping()
    await watcher.subscribe(topic)
    await watcher.take_publish(topic, b"x")
    await client.publish(topic, b"", retain=True)
    await client.ping()
    # It is delivered as any message.
    packet = await watcher.take_publish(topic, b"")
    assert not packet.retain
    await client.subscribe(topic)
    await client.expect_nothing()


@shows("MQTT-3.3.1-7")
async def test_an_empty_retained_message_is_not_stored(lab: Lab) -> None:
    client = await lab.client("a")
    await client.publish(lab.topic("t"), b"", retain=True)
    await client.subscribe(lab.topic("t"))
    await client.expect_nothing()


@shows("MQTT-3.3.1-8")
@pytest.mark.parametrize("payload", [b"y", b""])
async def test_a_message_without_retain_leaves_the_retained_one_alone(lab: Lab, payload: bytes) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.publish(topic, b"x", retain=True)
    await client.publish(topic, payload)
    await client.subscribe(topic)
    await client.take_publish(topic, b"x")
    await client.expect_nothing()


@shows("MQTT-3.3.1-8")
async def test_a_message_without_retain_is_not_stored(lab: Lab) -> None:
    client = await lab.client("a")
    await client.publish(lab.topic("t"), b"x")
    await client.subscribe(lab.topic("t"))
    await client.expect_nothing()


@shows("MQTT-3.3.1-5", "MQTT-4.3.3-10")
async def test_a_retained_qos_2_message_is_stored_at_pubrel(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.send(raw.publish(topic, b"x", qos=2, packet_id=1, retain=True))
    await client.expect_type(raw.PUBREC)
    await client.subscribe((topic, 0))
    await client.expect_nothing()
    await client.send(raw.ack(raw.PUBREL, 1))
    await client.expect_publish(topic, b"x")
    await client.expect("70 02 00 01")
    later = await lab.client("b")
    await later.subscribe((topic, 0))
    await later.expect_publish(topic, b"x")


@shows("MQTT-3.3.1-9", "MQTT-3.8.4-4")
async def test_retain_handling_0_sends_at_every_subscribe(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.publish(topic, b"x", retain=True)
    for _ in range(2):
        await client.subscribe((topic, raw.options(0, handling=0)))
        await client.expect_publish(topic, b"x")


@shows("MQTT-3.3.1-10")
async def test_retain_handling_1_sends_to_a_new_subscription_only(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.publish(topic, b"x", retain=True)
    await client.subscribe((topic, raw.options(0, handling=1)))
    await client.expect_publish(topic, b"x")
    await client.subscribe((topic, raw.options(1, handling=1)))
    await client.expect_nothing()
    await client.send(raw.unsubscribe(2, topic))
    await client.expect_type(raw.UNSUBACK)
    await client.subscribe((topic, raw.options(0, handling=1)))
    await client.expect_publish(topic, b"x")


@shows("MQTT-3.3.1-10", "MQTT-3.1.2-5")
async def test_retain_handling_1_knows_the_subscriptions_of_a_resumed_session(lab: Lab) -> None:
    keep = raw.session_expiry(100)
    client = await lab.client("a", properties=keep)
    topic = lab.topic("t")
    await client.publish(topic, b"x", retain=True)
    await client.subscribe((topic, raw.options(0, handling=2)))
    await client.disconnect()
    client = await lab.client("a", clean=False, properties=keep)
    await client.subscribe((topic, raw.options(0, handling=1)))
    await client.expect_nothing()


@shows("MQTT-3.3.1-11")
async def test_retain_handling_2_sends_none(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.publish(topic, b"x", retain=True)
    for _ in range(2):
        await client.subscribe((topic, raw.options(0, handling=2)))
        await client.expect_nothing()


@shows("MQTT-3.3.1-12", "MQTT-3.3.1-13")
@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("retain", [False, True])
async def test_retain_as_published(lab: Lab, as_published: bool, retain: bool) -> None:
    client, other = await lab.client("a"), await lab.client("b")
    topic = lab.topic("t")
    await other.subscribe((topic, raw.options(0, as_published=as_published)))
    await client.publish(topic, b"x", retain=retain)
    packet = await other.expect_publish(topic, b"x")
    assert packet.retain == (as_published and retain)


@shows("MQTT-3.3.1-9")
@pytest.mark.parametrize("as_published", [False, True])
async def test_retained_messages_of_a_new_subscription_have_retain_set(lab: Lab, as_published: bool) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.publish(topic, b"x", retain=True)
    await client.subscribe((topic, raw.options(0, as_published=as_published)))
    assert (await client.expect_publish(topic, b"x")).retain


@shows("MQTT-3.3.1-9", "MQTT-3.8.4-8")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
async def test_the_qos_of_a_retained_message(lab: Lab, published: int, granted: int) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.publish(topic, b"x", qos=published, retain=True)
    await client.subscribe((topic, granted))
    await client.take_publish(topic, b"x", qos=min(published, granted))


@shows("MQTT-3.3.1-9")
async def test_all_retained_messages_that_match_come_after_the_suback(lab: Lab) -> None:
    client = await lab.client("a")
    topics = [lab.topic(f"t/{n}") for n in range(50)]
    for topic in topics:
        await client.publish(topic, b"x", retain=True)
    await client.publish(lab.topic("u"), b"x", retain=True)
    await client.send(raw.subscribe(1, (lab.topic("t/+"), 0)), raw.PINGREQ)
    await client.expect_type(raw.SUBACK)
    got = []
    while (packet := await client.receive()).type == raw.PUBLISH:
        got.append(packet.topic)
    assert packet.data == raw.PINGRESP
    # A broker may hand many retained messages over in turns.
    while len(got) < len(topics):
        got.append((await client.expect_type(raw.PUBLISH)).topic)
    assert sorted(got) == sorted(topics)
    await client.expect_nothing()


@shows("MQTT-3.3.1-9", "MQTT-3.8.4-1", "MQTT-3.3.4-1")
async def test_answers_come_in_the_order_of_what_they_answer(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.publish(topic, b"retained", retain=True)
    await client.send(
        raw.subscribe(1, (topic, 0)),
        raw.publish(topic, b"own", qos=1, packet_id=2),
        raw.subscribe(3, (lab.topic("u"), 0)),
        raw.publish(lab.topic("v"), b"x", qos=2, packet_id=4),
        raw.unsubscribe(5, topic),
        raw.PINGREQ,
    )
    assert (await client.expect_type(raw.SUBACK)).packet_id == 1
    await client.expect_publish(topic, b"retained")
    await client.expect_publish(topic, b"own")
    assert (await client.expect_type(raw.PUBACK)).packet_id == 2
    assert (await client.expect_type(raw.SUBACK)).packet_id == 3
    assert (await client.expect_type(raw.PUBREC)).packet_id == 4
    assert (await client.expect_type(raw.UNSUBACK)).packet_id == 5
    await client.expect(raw.PINGRESP)


@shows("MQTT-3.3.1-9", "MQTT-3.3.4-3")
async def test_a_retained_message_carries_the_subscription_identifier(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.publish(topic, b"x", retain=True)
    await client.subscribe((topic, 0), properties=raw.subscription_identifier(77))
    assert (await client.expect_publish(topic, b"x")).all(raw.SUBSCRIPTION_IDENTIFIER) == [77]


@shows("MQTT-3.3.2-17", "MQTT-3.3.2-18", "MQTT-3.3.1-5")
async def test_a_retained_message_keeps_its_properties(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    properties = raw.user_property("b", "1") + raw.user_property("a", "2") + raw.content_type("c")
    await client.publish(topic, b"x", retain=True, properties=properties)
    await client.subscribe((topic, 0))
    packet = await client.expect_publish(topic, b"x")
    assert packet.all(raw.USER_PROPERTY) == [("b", "1"), ("a", "2")]
    assert packet.get(0x03) == "c"


# Properties


@shows(
    "MQTT-3.3.2-4",
    "MQTT-3.3.2-15",
    "MQTT-3.3.2-16",
    "MQTT-3.3.2-17",
    "MQTT-3.3.2-18",
    "MQTT-3.3.2-20",
)
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_properties_reach_the_subscriber_unchanged(lab: Lab, qos: int) -> None:
    client, other = await lab.client("a"), await lab.client("b")
    topic = lab.topic("t")
    await other.subscribe(topic)
    users = [("z", "1"), ("a", "2"), ("z", "1"), ("", ""), ("k", "é" * 100)]
    properties = (
        raw.payload_format(1)
        + raw.content_type("text/plain; é")
        + raw.response_topic("answer/é")
        + raw.correlation_data(b"\x00\xff\x00")
        + b"".join(raw.user_property(*user) for user in users)
    )
    await client.publish(topic, b"x", qos=qos, properties=properties)
    packet = await other.take_publish(topic, b"x", qos=qos)
    assert packet.all(raw.USER_PROPERTY) == users
    assert packet.get(0x01) == 1
    assert packet.get(0x03) == "text/plain; é"
    assert packet.get(0x08) == "answer/é"
    assert packet.get(0x09) == b"\x00\xff\x00"
    assert len(packet.properties) == 4 + len(users)


@shows("MQTT-3.3.2-4")
@pytest.mark.parametrize("value", [0, 1])
async def test_a_payload_format_indicator_stays_what_it_is(lab: Lab, value: int) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.subscribe((topic, 0))
    await client.publish(topic, b"x", properties=raw.payload_format(value))
    # 0 says the same as no indicator at all, but it is passed on as it came.
    assert (await client.expect_publish(topic, b"x")).get(0x01) == value


@shows("MQTT-3.3.2-6")
async def test_a_message_expiry_interval_is_passed_on(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.subscribe((topic, 0))
    await client.publish(topic, b"x", properties=raw.message_expiry(1000))
    seconds = (await client.expect_publish(topic, b"x")).get(raw.MESSAGE_EXPIRY)
    assert isinstance(seconds, int)
    assert 990 <= seconds <= 1000


@shows("MQTT-3.3.2-14")
@pytest.mark.parametrize("topic", ["a/#", "+", "a/+/b"])
async def test_a_response_topic_with_wildcards(lab: Lab, topic: str) -> None:
    client = await lab.client("a")
    await client.send(raw.publish(lab.topic("t"), properties=raw.response_topic(topic)))
    await client.expect_disconnect(PROTOCOL_ERROR, 0x81, 0x90)


@shows("MQTT-3.3.4-6")
async def test_a_clients_publish_with_a_subscription_identifier(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.publish(lab.topic("t"), properties=raw.subscription_identifier(1)))
    await client.expect_disconnect(PROTOCOL_ERROR, 0x81)


@shows("MQTT-3.3.2-3")
async def test_the_topic_name_that_was_published_is_the_one_delivered(lab: Lab) -> None:
    client = await lab.client("a")
    await client.subscribe((lab.topic("+/b/#"), 0))
    await client.publish(lab.topic("a/b/c"), b"x")
    await client.expect_publish(lab.topic("a/b/c"), b"x")
    await client.publish(lab.topic("a/c"), b"x")
    await client.expect_nothing()


# Topic aliases


@shows("MQTT-3.3.2-12", "MQTT-3.3.2-8")
async def test_every_alias_up_to_the_brokers_maximum(lab: Lab) -> None:
    client = await lab.client("a")
    maximum = client.connack.get(raw.TOPIC_ALIAS_MAXIMUM)
    assert isinstance(maximum, int)
    assert maximum
    await client.subscribe((lab.topic("#"), 0))
    for alias in range(1, maximum + 1):
        await client.publish(lab.topic(f"t{alias}"), b"x", properties=raw.topic_alias(alias))
        packet = await client.expect_publish(lab.topic(f"t{alias}"), b"x")
        assert packet.get(raw.TOPIC_ALIAS) is None
    for alias in range(1, maximum + 1):
        await client.publish("", b"y", properties=raw.topic_alias(alias))
        await client.expect_publish(lab.topic(f"t{alias}"), b"y")


@shows("MQTT-3.3.2-12")
async def test_an_alias_can_be_given_to_another_topic(lab: Lab) -> None:
    client = await lab.client("a")
    await client.subscribe((lab.topic("#"), 0))
    for topic in ("1", "2"):
        await client.publish(lab.topic(topic), b"x", properties=raw.topic_alias(1))
        await client.expect_publish(lab.topic(topic), b"x")
        await client.publish("", b"y", properties=raw.topic_alias(1))
        await client.expect_publish(lab.topic(topic), b"y")


@shows("MQTT-3.3.2-12", "MQTT-4.13.1-1")
async def test_an_alias_above_the_brokers_maximum() -> None:
    async with laboratory(mqtt={"max_topic_alias": 5}) as lab:
        client = await lab.client("a")
        assert client.connack.get(raw.TOPIC_ALIAS_MAXIMUM) == 5
        await client.send(raw.publish(lab.topic("t"), properties=raw.topic_alias(6)))
        await client.expect_disconnect(ALIAS_INVALID)


@shows("MQTT-3.3.2-12")
async def test_a_broker_without_aliases_refuses_them() -> None:
    async with laboratory(mqtt={"max_topic_alias": 0}) as lab:
        client = await lab.client("a")
        assert client.connack.get(raw.TOPIC_ALIAS_MAXIMUM) in (None, 0)
        await client.send(raw.publish(lab.topic("t"), properties=raw.topic_alias(1)))
        await client.expect_disconnect(ALIAS_INVALID)


@shows("MQTT-3.3.2-8", "MQTT-4.13.1-1")
async def test_alias_0(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.publish(lab.topic("t"), properties=raw.topic_alias(0)))
    await client.expect_disconnect(ALIAS_INVALID, PROTOCOL_ERROR)


@shows("MQTT-3.3.2-7", "MQTT-4.13.1-1")
async def test_an_empty_topic_with_an_alias_that_was_not_set(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.publish("", properties=raw.topic_alias(1)))
    await client.expect_disconnect(PROTOCOL_ERROR)


@shows("MQTT-3.3.2-7")
async def test_aliases_end_with_the_connection(lab: Lab) -> None:
    keep = raw.session_expiry(100)
    client = await lab.client("a", properties=keep)
    await client.publish(lab.topic("t"), properties=raw.topic_alias(1))
    await client.disconnect()
    client = await lab.client("a", clean=False, properties=keep)
    await client.send(raw.publish("", properties=raw.topic_alias(1)))
    await client.expect_disconnect(PROTOCOL_ERROR)


@shows("MQTT-3.1.2-27")
@pytest.mark.parametrize("properties", [b"", raw.topic_alias_maximum(0)])
async def test_no_alias_to_a_client_that_allows_none(lab: Lab, properties: bytes) -> None:
    client = await lab.client("a", properties=properties)
    await client.subscribe((lab.topic("t"), 0))
    for _ in range(3):
        await client.publish(lab.topic("t"), b"x")
        assert (await client.expect_publish(lab.topic("t"), b"x")).get(raw.TOPIC_ALIAS) is None


@shows("MQTT-3.1.2-26", "MQTT-3.3.2-11", "MQTT-3.3.2-8", "MQTT-3.3.2-7")
@pytest.mark.parametrize("qos", [0, 1])
async def test_aliases_to_a_client_that_allows_them(lab: Lab, qos: int) -> None:
    client = await lab.client("a", properties=raw.topic_alias_maximum(2))
    publisher = await lab.client("b")
    await client.subscribe((lab.topic("#"), qos))
    known: dict[int, str] = {}
    short = 0
    for number in range(12):
        topic = lab.topic(f"t{number % 3}")
        await publisher.publish(topic, b"x", qos=qos)
        packet = await client.expect_type(raw.PUBLISH)
        if qos:
            await client.send(raw.ack(raw.PUBACK, packet.packet_id))
        alias = packet.get(raw.TOPIC_ALIAS)
        if alias is not None:
            assert isinstance(alias, int)
            assert 1 <= alias <= 2
            if packet.topic:
                known[alias] = packet.topic
            else:
                short += 1
            assert known[alias] == topic
        else:
            assert packet.topic == topic
    assert short, "aliases were allowed and none was used"


@shows("MQTT-3.3.2-7")
async def test_aliases_to_a_client_begin_anew_with_its_connection(lab: Lab) -> None:
    settings = raw.topic_alias_maximum(5) + raw.session_expiry(100)
    publisher = await lab.client("b")
    topic = lab.topic("t")
    client = await lab.client("a", properties=settings)
    await client.subscribe((topic, 0))
    for clean in (True, False):
        if not clean:
            await client.disconnect()
            client = await lab.client("a", clean=False, properties=settings)
        await publisher.publish(topic, b"x")
        assert (await client.expect_type(raw.PUBLISH)).topic == topic


# Which QoS, how many copies


@shows("MQTT-3.8.4-8")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
async def test_the_lower_of_the_published_and_the_granted_qos(lab: Lab, published: int, granted: int) -> None:
    client, other = await lab.client("a"), await lab.client("b")
    topic = lab.topic("t")
    assert await other.subscribe((topic, granted)) == [granted]
    await client.publish(topic, b"x", qos=published)
    await other.take_publish(topic, b"x", qos=min(published, granted))
    await other.expect_nothing(after=client)


@shows("MQTT-3.3.4-2", "MQTT-3.3.4-3", "MQTT-3.3.4-4")
async def test_overlapping_subscriptions_give_one_copy(lab: Lab) -> None:
    client, other = await lab.client("a"), await lab.client("b")
    topic = lab.topic("a/b")
    await other.subscribe((lab.topic("#"), 0), properties=raw.subscription_identifier(1))
    await other.subscribe((lab.topic("a/+"), 2), properties=raw.subscription_identifier(268_435_455))
    await other.subscribe((topic, 1))
    await other.subscribe((lab.topic("other"), 2), properties=raw.subscription_identifier(3))
    await client.publish(topic, b"x", qos=2)
    packet = await other.take_publish(topic, b"x", qos=2)
    assert sorted(packet.all(raw.SUBSCRIPTION_IDENTIFIER), key=str) == [1, 268_435_455]
    await other.expect_nothing(after=client)


@shows("MQTT-3.3.4-2", "MQTT-3.3.1-13")
async def test_overlapping_subscriptions_that_differ_in_retain_as_published(lab: Lab) -> None:
    client, other = await lab.client("a"), await lab.client("b")
    topic = lab.topic("a")
    await other.subscribe((lab.topic("#"), raw.options(0, as_published=True)), (topic, raw.options(0)))
    await client.publish(topic, b"x", retain=True)
    await other.expect_publish(topic, b"x")
    await other.expect_nothing(after=client)


@shows("MQTT-3.3.4-3", "MQTT-3.8.4-3")
async def test_subscribing_again_replaces_the_identifier(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    for properties, expected in [
        (raw.subscription_identifier(5), [5]),
        (raw.subscription_identifier(6), [6]),
        (b"", []),
    ]:
        await client.subscribe((topic, 0), properties=properties)
        await client.publish(topic, b"x")
        assert (await client.expect_publish(topic, b"x")).all(raw.SUBSCRIPTION_IDENTIFIER) == expected


@shows("MQTT-3.3.4-3")
async def test_one_identifier_goes_for_all_filters_of_its_subscribe(lab: Lab) -> None:
    client = await lab.client("a")
    await client.subscribe((lab.topic("1"), 0), (lab.topic("2"), 0), properties=raw.subscription_identifier(9))
    for topic in ("1", "2"):
        await client.publish(lab.topic(topic), b"x")
        assert (await client.expect_publish(lab.topic(topic), b"x")).all(raw.SUBSCRIPTION_IDENTIFIER) == [9]


@shows("MQTT-3.1.2-24", "MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_too_large_for_the_client_is_dropped_as_if_delivered(lab: Lab, qos: int) -> None:
    topic = lab.topic("t")
    size = len(raw.publish(topic, bytes(100), qos=qos, packet_id=1 if qos else None))
    client = await lab.client("a", properties=raw.maximum_packet_size(size) + raw.receive_maximum(1))
    other, publisher = await lab.client("b"), await lab.client("c")
    await client.subscribe(topic)
    await other.subscribe(topic)
    for _ in range(3):
        await publisher.publish(topic, bytes(101), qos=qos)
        await other.take_publish(topic, bytes(101), qos=qos)
    # The send quota of one is not used up, and a packet of just the maximum fits.
    await publisher.publish(topic, bytes(100), qos=qos)
    await client.take_publish(topic, bytes(100), qos=qos)


@shows("MQTT-3.1.2-24")
async def test_a_retained_message_too_large_for_the_client_is_left_out(lab: Lab) -> None:
    publisher = await lab.client("b")
    await publisher.publish(lab.topic("a"), bytes(1000), retain=True)
    await publisher.publish(lab.topic("b"), bytes(10), retain=True)
    await publisher.ping()
    client = await lab.client("a", properties=raw.maximum_packet_size(500))
    await client.subscribe(lab.topic("#"))
    await client.take_publish(lab.topic("b"), bytes(10))
    await client.expect_nothing()
