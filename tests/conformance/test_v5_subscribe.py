"""MQTT 5.0, SUBSCRIBE and UNSUBSCRIBE (3.8 to 3.11), matching (4.7) and shared subscriptions (4.8)."""

import pytest

from tests.conformance import raw
from tests.conformance.lab import Client, Lab, laboratory
from tests.conformance.statements import shows

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
NAME_INVALID = 0x90


@shows("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-2.2.1-6", "MQTT-3.8.4-7", "MQTT-3.9.3-2", "MQTT-2.2.2-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_suback(lab: Lab, qos: int) -> None:
    client = await lab.client("a")
    await client.send(raw.subscribe(0xFFFE, (lab.topic("t"), qos)))
    await client.expect(f"90 04 ff fe 00 0{qos}")


@shows("MQTT-3.8.4-5", "MQTT-3.8.4-6", "MQTT-3.9.3-1")
async def test_one_suback_for_several_filters_in_their_order(lab: Lab) -> None:
    client = await lab.client("a")
    qos = [2, 0, 1, 1, 0, 2]
    assert await client.subscribe(*((lab.topic(str(n)), q) for n, q in enumerate(qos))) == qos
    await client.expect_nothing()


@shows("MQTT-3.8.4-5", "MQTT-3.8.4-3")
async def test_the_same_filter_twice_in_one_subscribe(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    assert await client.subscribe((topic, 2), (topic, 0)) == [2, 0]
    await client.publish(topic, b"x", qos=0)
    await client.expect_publish(topic, b"x")
    await client.expect_nothing()


@shows("MQTT-3.8.3-2", "MQTT-3.10.3-2")
@pytest.mark.parametrize("packet", [raw.subscribe(1), raw.unsubscribe(1)], ids=["subscribe", "unsubscribe"])
async def test_no_filter_at_all(lab: Lab, packet: bytes) -> None:
    client = await lab.client("a")
    await client.send(packet)
    await client.expect_disconnect(PROTOCOL_ERROR, MALFORMED)


@shows("MQTT-3.8.3-5", "MQTT-4.13.1-1")
@pytest.mark.parametrize("option", [0x40, 0x80, 0xC0, 0x03, 0x30])
async def test_reserved_bits_and_values_in_the_subscription_options(lab: Lab, option: int) -> None:
    client = await lab.client("a")
    await client.send(raw.subscribe(1, (lab.topic("t"), option)))
    await client.expect_disconnect(MALFORMED, *([PROTOCOL_ERROR] if option == 0x30 else []))


@shows("MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(raw.subscription_identifier(0), id="0"),
        pytest.param(raw.subscription_identifier(1) * 2, id="twice"),
    ],
)
async def test_a_subscription_identifier_that_is_a_protocol_error(lab: Lab, properties: bytes) -> None:
    client = await lab.client("a")
    await client.send(raw.subscribe(1, (lab.topic("t"), 0), properties=properties))
    await client.expect_disconnect(PROTOCOL_ERROR)


@shows("MQTT-3.8.3-3")
async def test_no_local(lab: Lab) -> None:
    client, other = await lab.client("a"), await lab.client("b")
    topic = lab.topic("t")
    await client.subscribe((topic, raw.options(1, no_local=True)))
    await client.publish(topic, b"own", qos=1)
    await client.expect_nothing()
    await other.publish(topic, b"other", qos=1)
    await client.take_publish(topic, b"other", qos=1)


@shows("MQTT-3.8.3-3")
async def test_no_local_goes_by_client_id_not_by_connection(lab: Lab) -> None:
    keep = raw.session_expiry(100)
    client = await lab.client("a", properties=keep)
    topic = lab.topic("t")
    await client.subscribe((topic, raw.options(1, no_local=True)))
    await client.disconnect()
    client = await lab.client("a", clean=False, properties=keep)
    await client.publish(topic, b"x", qos=1)
    await client.expect_nothing()


@shows("MQTT-3.8.3-3", "MQTT-3.3.4-2")
async def test_no_local_on_one_of_two_overlapping_subscriptions(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.subscribe((lab.topic("#"), raw.options(2, no_local=True)), properties=raw.subscription_identifier(1))
    await client.subscribe((topic, 0), properties=raw.subscription_identifier(2))
    await client.publish(topic, b"x", qos=0)
    packet = await client.expect_publish(topic, b"x")
    assert packet.all(raw.SUBSCRIPTION_IDENTIFIER) == [2]
    await client.expect_nothing()


@shows("MQTT-3.8.4-3", "MQTT-3.8.4-8")
async def test_subscribing_again_replaces_the_subscription(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    for qos in (2, 0, 1):
        assert await client.subscribe((topic, qos)) == [qos]
        await client.publish(topic, b"x", qos=0)
        await client.take_publish(topic, b"x", qos=0)
        await client.expect_nothing()
    other = await lab.client("b")
    await other.publish(topic, b"x", qos=2)
    await client.take_publish(topic, b"x", qos=1)


@shows("MQTT-3.8.4-4")
async def test_no_message_is_lost_while_a_subscription_is_replaced(lab: Lab) -> None:
    client, publisher = await lab.client("a"), await lab.client("b")
    topic = lab.topic("t")
    await client.subscribe((topic, 0))
    packets = []
    for number in range(50):
        packets.append(raw.publish(topic, b"%d" % number))
    for number, packet in enumerate(packets):
        await publisher.send(packet)
        await client.send(raw.subscribe(number + 1, (topic, raw.options(0, handling=2))))
    await publisher.ping()
    got: list[bytes] = []
    subacks = 0
    while len(got) < 50 or subacks < 50:
        received = await client.receive()
        if received.type == raw.SUBACK:
            subacks += 1
        else:
            got.append(received.payload)
    assert got == [b"%d" % number for number in range(50)]


@shows("MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-2.2.1-6", "MQTT-3.11.3-2")
async def test_unsuback(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.subscribe(topic)
    await client.send(raw.unsubscribe(0xFFFE, topic))
    await client.expect("b0 04 ff fe 00 00")
    await client.send(raw.unsubscribe(0xFFFD, topic))
    await client.expect("b0 04 ff fd 00 11")


@shows("MQTT-3.10.4-6", "MQTT-3.11.3-1")
async def test_one_unsuback_for_several_filters_in_their_order(lab: Lab) -> None:
    client = await lab.client("a")
    await client.subscribe(lab.topic("1"), lab.topic("3"))
    await client.send(raw.unsubscribe(7, *(lab.topic(name) for name in ("1", "2", "3", "1"))))
    await client.expect("b0 07 00 07 00 00 11 00 11")


@shows("MQTT-3.10.4-1")
@pytest.mark.parametrize("filter", ["a/+", "a/#", "A/b", "a/b/", "/a/b", "a"])
async def test_unsubscribe_goes_by_the_filter_not_by_what_it_matches(lab: Lab, filter: str) -> None:
    client = await lab.client("a")
    topic = lab.topic("a/b")
    await client.subscribe((topic, 0))
    await client.send(raw.unsubscribe(1, lab.topic(filter)))
    await client.expect("b0 04 00 01 00 11")
    await client.publish(topic, b"x")
    await client.expect_publish(topic, b"x")


@shows("MQTT-3.10.4-1", "MQTT-3.10.4-2")
async def test_unsubscribing_a_wildcard_leaves_the_others(lab: Lab) -> None:
    client, publisher = await lab.client("a"), await lab.client("b")
    topic = lab.topic("a")
    await client.subscribe((lab.topic("+"), 0), (topic, 0))
    await client.send(raw.unsubscribe(1, lab.topic("+")))
    await client.expect_type(raw.UNSUBACK)
    await publisher.publish(topic, b"x")
    await publisher.publish(lab.topic("b"), b"x")
    await publisher.ping()
    await client.expect_publish(topic, b"x")
    await client.expect_nothing()


@shows("MQTT-3.10.4-2")
async def test_nothing_comes_after_unsuback(lab: Lab) -> None:
    client, publisher = await lab.client("a"), await lab.client("b")
    topic = lab.topic("t")
    await client.subscribe(topic)
    await client.send(raw.unsubscribe(1, topic))
    await client.expect_type(raw.UNSUBACK)
    await publisher.publish(topic, b"x", qos=1)
    await client.expect_nothing()


@shows("MQTT-3.10.4-3")
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_delivery_that_had_begun_goes_on_after_unsubscribe(lab: Lab, qos: int) -> None:
    keep = raw.session_expiry(100)
    client, publisher = await lab.client("a", properties=keep), await lab.client("b")
    topic = lab.topic("t")
    await client.subscribe(topic)
    await publisher.publish(topic, b"x", qos=qos)
    first = await client.expect_publish(topic, b"x", qos=qos)
    await client.send(raw.unsubscribe(1, topic))
    await client.expect_type(raw.UNSUBACK)
    # Even over a new connection.
    await client.disconnect()
    client = await lab.client("a", clean=False, properties=keep)
    again = await client.take_publish(topic, b"x", qos=qos)
    assert again.dup
    assert again.packet_id == first.packet_id
    await client.expect_nothing()


@shows("MQTT-3.1.2-24", "MQTT-3.9.2-1", "MQTT-3.9.2-2", "MQTT-3.11.2-1", "MQTT-3.11.2-2")
async def test_suback_and_unsuback_within_a_small_maximum_packet_size(lab: Lab) -> None:
    client = await lab.client("a", properties=raw.maximum_packet_size(20))
    await client.send(raw.subscribe(1, (lab.topic("t"), 0), properties=raw.user_property("a", "b" * 50)))
    assert len((await client.expect_type(raw.SUBACK)).data) <= 20
    await client.send(raw.unsubscribe(1, lab.topic("t"), properties=raw.user_property("a", "b" * 50)))
    assert len((await client.expect_type(raw.UNSUBACK)).data) <= 20


# Matching


MATCHES = [
    ("a", "a"),
    ("a/b", "a/b"),
    ("#", "a"),
    ("#", "a/b/c"),
    ("#", "/a"),
    ("a/#", "a"),
    ("a/#", "a/"),
    ("a/#", "a/b"),
    ("a/#", "a/b/c"),
    ("+", "a"),
    ("+/+", "a/b"),
    ("+/+", "/a"),
    ("/+", "/a"),
    ("a/+", "a/"),
    ("a/+", "a/b"),
    ("a/+/c", "a/b/c"),
    ("a/+/c", "a//c"),
    ("+/b/+", "a/b/c"),
    ("+/#", "a"),
    ("+/#", "a/b"),
    ("a//b", "a//b"),
    ("a b", "a b"),
    ("a/$b", "a/$b"),
    ("a/+", "a/$b"),
    ("é/+", "é/ü"),
]
MISMATCHES = [
    ("a", "A"),
    ("a", "a/"),
    ("a", "/a"),
    ("a/b", "a/b/c"),
    ("+", "a/b"),
    ("+", "/a"),
    ("a/+", "a"),
    ("a/+", "a/b/c"),
    ("a/+", "b/c"),
    ("a/+/c", "a/b/d"),
    ("a/+/c", "a/c"),
    ("a/b/#", "a"),
    ("a/#", "ab"),
    ("+/+", "a"),
    ("a//b", "a/b"),
    ("a/b", "a//b"),
    ("é", "e\u0301"),
    ("a", "a "),
]


@shows("MQTT-3.3.2-3", "MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.3-4", "MQTT-4.5.0-1")
@pytest.mark.parametrize(
    ("filter", "topic", "matches"),
    [(filter, topic, True) for filter, topic in MATCHES] + [(filter, topic, False) for filter, topic in MISMATCHES],
)
async def test_matching(lab: Lab, filter: str, topic: str, matches: bool) -> None:
    client = await lab.client("a")
    await client.subscribe((lab.topic(filter), 0))
    await client.publish(lab.topic(topic), b"x")
    if matches:
        await client.expect_publish(lab.topic(topic), b"x")
    await client.expect_nothing()
    # And the same for retained messages.
    await client.publish(lab.topic(topic), b"r", retain=True)
    other = await lab.client("b")
    await other.subscribe((lab.topic(filter), 0))
    if matches:
        await other.expect_publish(lab.topic(topic), b"r")
    await other.expect_nothing()


@shows("MQTT-4.7.2-1")
@pytest.mark.parametrize("filter", ["#", "+/{}", "+/#", "+/+"])
async def test_a_wildcard_at_the_front_does_not_match_dollar_topics(lab: Lab, filter: str) -> None:
    client, publisher = await lab.client("a"), await lab.client("b")
    topic = f"$conformance/{lab.prefix}"
    # Retained messages of other tests may match; they do not matter here.
    await client.subscribe((filter.format(lab.prefix), raw.options(0, handling=2)))
    await publisher.publish(topic, b"x", retain=True)
    await publisher.publish(topic, b"", retain=True)
    await publisher.ping()
    await client.send(raw.PINGREQ)
    while (packet := await client.receive()).type == raw.PUBLISH:
        assert packet.topic != topic


@shows("MQTT-4.7.2-1")
@pytest.mark.parametrize("filter", ["$conformance/{}", "$conformance/+", "$conformance/#"])
async def test_dollar_topics_match_filters_that_name_them(lab: Lab, filter: str) -> None:
    client = await lab.client("a")
    topic = f"$conformance/{lab.prefix}"
    await client.subscribe((filter.format(lab.prefix), 0))
    await client.publish(topic, b"x")
    await client.expect_publish(topic, b"x")


# Shared subscriptions


async def _members(lab: Lab, count: int, filter: str, *, version: int = 5, **settings: object) -> list[Client]:
    members = []
    for number in range(count):
        member = await lab.client(f"m{number}", version=version, **settings)
        await member.subscribe(filter)
        members.append(member)
    return members


@shows("MQTT-4.8.2-1")
@pytest.mark.parametrize("filter", ["$share//a", "$share/", "$share/g", "$share/g/"])
async def test_shared_filters_without_a_name_or_a_filter(lab: Lab, filter: str) -> None:
    client = await lab.client("a")
    await client.send(raw.subscribe(1, (filter, 0)))
    await client.expect_disconnect(MALFORMED)


@shows("MQTT-4.8.2-2")
@pytest.mark.parametrize("filter", ["$share/+/a", "$share/#/a", "$share/g+/a", "$share/g#/a", "$share/#", "$share/+"])
async def test_share_names_with_wildcards(lab: Lab, filter: str) -> None:
    client = await lab.client("a")
    await client.send(raw.subscribe(1, (filter, 0)))
    await client.expect_disconnect(MALFORMED)


@shows("MQTT-3.8.3-4")
async def test_no_local_on_a_shared_subscription(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.subscribe(1, (f"$share/g/{lab.topic('t')}", raw.options(0, no_local=True))))
    await client.expect_disconnect(PROTOCOL_ERROR)


@shows("MQTT-4.7.0-1", "MQTT-4.8.2-1")
async def test_a_publish_to_a_shared_filter_is_refused(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.publish(f"$share/g/{lab.topic('t')}", b"x"))
    await client.expect_disconnect(NAME_INVALID, PROTOCOL_ERROR, MALFORMED, 0x87)


@shows("MQTT-4.8.2-1", "MQTT-4.8.2-2", "MQTT-4.8.2-3")
async def test_members_take_turns_in_the_order_of_their_subscriptions(lab: Lab) -> None:
    topic = lab.topic("t")
    members = await _members(lab, 3, f"$share/g/{topic}")
    publisher = await lab.client("p")
    for number in range(9):
        payload = b"%d" % number
        await publisher.publish(topic, payload, qos=1)
        await members[number % 3].take_publish(topic, payload, qos=1)
    for member in members:
        await member.expect_nothing()


@shows("MQTT-4.8.2-1")
async def test_groups_and_plain_subscriptions_each_get_a_copy(lab: Lab) -> None:
    topic = lab.topic("t")
    plain, one, two, publisher = [await lab.client(name) for name in "abcd"]
    await plain.subscribe((topic, 0))
    await one.subscribe((f"$share/g/{topic}", 0))
    await two.subscribe((f"$share/h/{lab.topic('+')}", 0))
    await publisher.publish(topic, b"x")
    for client in (plain, one, two):
        await client.expect_publish(topic, b"x")
        await client.expect_nothing(after=publisher)


@shows("MQTT-4.8.2-1")
async def test_a_plain_and_a_shared_subscription_of_one_client_are_two(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.subscribe((topic, 0), (f"$share/g/{topic}", 0))
    await client.publish(topic, b"x")
    await client.expect_publish(topic, b"x")
    await client.expect_publish(topic, b"x")
    await client.expect_nothing()
    await client.send(raw.unsubscribe(1, f"$share/g/{topic}", f"$share/h/{topic}"))
    await client.expect("b0 05 00 01 00 00 11")
    await client.publish(topic, b"x")
    await client.expect_publish(topic, b"x")
    await client.expect_nothing()


@shows("MQTT-4.8.2-3", "MQTT-3.8.4-8")
async def test_a_shared_message_has_the_qos_granted_to_its_member(lab: Lab) -> None:
    topic = lab.topic("t")
    clients = [await lab.client(name) for name in "abc"]
    for qos, client in enumerate(clients):
        await client.subscribe((f"$share/g/{topic}", qos))
    publisher = await lab.client("p")
    for qos, client in enumerate(clients):
        await publisher.publish(topic, b"x", qos=2)
        await client.take_publish(topic, b"x", qos=qos)


@shows("MQTT-3.3.1-9", "MQTT-4.8.2-1")
async def test_a_shared_subscription_gets_no_retained_messages(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.publish(topic, b"x", retain=True)
    await client.subscribe((f"$share/g/{topic}", 0))
    await client.expect_nothing()


@shows("MQTT-3.3.4-3", "MQTT-4.8.2-1")
async def test_a_shared_subscription_has_an_identifier(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.subscribe((f"$share/g/{topic}", 0), properties=raw.subscription_identifier(5))
    await client.publish(topic, b"x")
    assert (await client.expect_publish(topic, b"x")).all(raw.SUBSCRIPTION_IDENTIFIER) == [5]


@shows("MQTT-4.8.2-4")
async def test_a_qos_2_delivery_that_had_begun_is_completed_with_the_same_member(lab: Lab) -> None:
    keep = raw.session_expiry(100)
    topic = lab.topic("t")
    one, two = await _members(lab, 2, f"$share/g/{topic}", properties=keep)
    publisher = await lab.client("p")
    await publisher.publish(topic, b"x", qos=2)
    first = await one.expect_publish(topic, b"x", qos=2)
    await one.send(raw.ack(raw.PUBREC, first.packet_id))
    await one.expect_type(raw.PUBREL)
    await one.disconnect()
    await two.expect_nothing()
    one = await lab.client("m0", clean=False, properties=keep)
    await one.expect(raw.ack(raw.PUBREL, first.packet_id))
    await one.send(raw.ack(raw.PUBCOMP, first.packet_id))
    await one.expect_nothing()
    await two.expect_nothing()


@shows("MQTT-4.8.2-5")
async def test_a_qos_2_delivery_that_had_begun_goes_to_nobody_else(lab: Lab) -> None:
    topic = lab.topic("t")
    one, two = await _members(lab, 2, f"$share/g/{topic}", properties=raw.session_expiry(100))
    publisher = await lab.client("p")
    await publisher.publish(topic, b"x", qos=2)
    await one.expect_publish(topic, b"x", qos=2)
    await one.disconnect(0, raw.session_expiry(0))
    await publisher.ping()
    await two.expect_nothing()


@shows("MQTT-4.8.2-6", "MQTT-4.4.0-2")
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_shared_message_that_is_refused_goes_to_nobody_else(lab: Lab, qos: int) -> None:
    topic = lab.topic("t")
    one, two = await _members(lab, 2, f"$share/g/{topic}")
    publisher = await lab.client("p")
    await publisher.publish(topic, b"x", qos=qos)
    packet = await one.expect_publish(topic, b"x", qos=qos)
    await one.send(raw.ack(raw.PUBACK if qos == 1 else raw.PUBREC, packet.packet_id, 0x80))
    await one.expect_nothing()
    await two.expect_nothing()


@shows("MQTT-4.5.0-1", "MQTT-4.8.2-1")
async def test_a_member_that_left_gets_no_turn(lab: Lab) -> None:
    topic = lab.topic("t")
    one, two = await _members(lab, 2, f"$share/g/{topic}")
    await one.disconnect()
    publisher = await lab.client("p")
    for _ in range(4):
        await publisher.publish(topic, b"x", qos=1)
        await two.take_publish(topic, b"x", qos=1)


@shows("MQTT-3.9.3-2", "MQTT-3.8.4-7")
@pytest.mark.parametrize(
    ("setting", "filter", "reason", "property"),
    [("wildcard_subscriptions", "{}/#", 0xA2, 0x28), ("shared_subscriptions", "$share/g/{}", 0x9E, 0x2A)],
)
async def test_what_is_not_available_is_told_and_refused(setting: str, filter: str, reason: int, property: int) -> None:
    async with laboratory(mqtt={setting: False}) as lab:
        client = await lab.client("a")
        assert client.connack.get(property) == 0
        assert await client.subscribe((filter.format(lab.prefix), 0), (lab.topic("t"), 1)) == [reason, 1]
