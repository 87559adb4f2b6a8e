"""MQTT 5.0, the QoS exchanges (3.4 to 3.7, 4.3), sending again (4.4), order (4.6) and flow control (4.9)."""

import pytest

from tests.conformance import raw
from tests.conformance.lab import Client, Lab, laboratory
from tests.conformance.statements import shows

KEEP = raw.session_expiry(100)
PROTOCOL_ERROR = 0x82


async def _deliver(lab: Lab, client: Client, payload: bytes, *, qos: int) -> raw.Received:
    """A message to the client, which does not acknowledge it."""
    publisher = await lab.client("publisher")
    await publisher.publish(lab.topic("t"), payload, qos=qos)
    await publisher.disconnect()
    return await client.expect_publish(lab.topic("t"), payload, qos=qos)


async def _subscriber(lab: Lab, *, qos: int = 2, properties: bytes = KEEP) -> Client:
    client = await lab.client("subscriber", properties=properties)
    await client.subscribe((lab.topic("t"), qos))
    return client


# The broker receives


@shows("MQTT-4.3.2-5", "MQTT-4.3.2-4")
@pytest.mark.parametrize("dup", [False, True])
async def test_after_puback_the_same_id_is_a_new_message(lab: Lab, dup: bool) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.subscribe((topic, 0))
    for _ in range(2):
        await client.send(raw.publish(topic, b"x", qos=1, packet_id=5, dup=dup))
        await client.expect_publish(topic, b"x")
        await client.expect("40 02 00 05")


@shows("MQTT-4.3.3-10", "MQTT-4.3.3-8")
@pytest.mark.parametrize("dup", [False, True])
async def test_a_qos_2_publish_repeated_before_pubrel_is_delivered_once(lab: Lab, dup: bool) -> None:
    client, other = await lab.client("a"), await lab.client("b")
    topic = lab.topic("t")
    await other.subscribe((topic, 0))
    for _ in range(3):
        await client.send(raw.publish(topic, b"x", qos=2, packet_id=5, dup=dup))
        assert (await client.expect_type(raw.PUBREC)).packet_id == 5
    await client.send(raw.ack(raw.PUBREL, 5))
    await client.expect("70 02 00 05")
    await other.expect_publish(topic, b"x")
    await other.expect_nothing(after=client)


@shows("MQTT-4.3.3-10", "MQTT-4.4.0-1", "MQTT-3.1.2-5")
async def test_a_qos_2_publish_repeated_over_a_new_connection_is_delivered_once(lab: Lab) -> None:
    client, other = await lab.client("a", properties=KEEP), await lab.client("b")
    topic = lab.topic("t")
    await other.subscribe((topic, 0))
    await client.send(raw.publish(topic, b"x", qos=2, packet_id=5))
    await client.expect_type(raw.PUBREC)
    await client.abort()
    client = await lab.client("a", clean=False, properties=KEEP)
    assert client.connack.session_present
    await client.send(raw.publish(topic, b"x", qos=2, packet_id=5, dup=True))
    await client.expect_type(raw.PUBREC)
    await client.send(raw.ack(raw.PUBREL, 5))
    await client.expect("70 02 00 05")
    await other.expect_publish(topic, b"x")
    await other.expect_nothing(after=client)


@shows("MQTT-4.3.3-12", "MQTT-4.3.3-11")
async def test_after_pubcomp_the_same_id_is_a_new_message(lab: Lab) -> None:
    client, other = await lab.client("a"), await lab.client("b")
    topic = lab.topic("t")
    await other.subscribe((topic, 0))
    for _ in range(2):
        await client.publish(topic, b"x", qos=2, packet_id=5)
        await other.expect_publish(topic, b"x")


@shows("MQTT-4.3.3-11", "MQTT-3.7.2-1")
async def test_a_pubrel_for_nothing_is_answered(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.ack(raw.PUBREL, 99))
    await client.expect("70 03 00 63 92")


@shows("MQTT-4.3.3-11", "MQTT-4.4.0-1", "MQTT-3.7.2-1")
async def test_a_pubrel_whose_pubcomp_was_lost_with_the_connection_is_answered_once_more(lab: Lab) -> None:
    """What is open is known at both ends of a resumed session: an identifier that is not has had its PUBREL."""
    client, other = await lab.client("a", properties=KEEP), await lab.client("b")
    await other.subscribe((lab.topic("t"), 0))
    await client.publish(lab.topic("t"), b"x", qos=2, packet_id=5)
    await other.expect_publish(lab.topic("t"), b"x")
    await client.abort()
    client = await lab.client("a", clean=False, properties=KEEP)
    await client.send(raw.ack(raw.PUBREL, 5), raw.ack(raw.PUBREL, 6))
    await client.expect("70 02 00 05", "70 02 00 06")
    await other.expect_nothing(after=client)
    await client.abort()
    client = await lab.client("a", clean=True)
    await client.send(raw.ack(raw.PUBREL, 5))
    await client.expect("70 03 00 05 92")


@shows("MQTT-4.3.3-11", "MQTT-4.4.0-1")
async def test_a_pubrel_sent_again_over_a_new_connection_is_answered(lab: Lab) -> None:
    client = await lab.client("a", properties=KEEP)
    await client.send(raw.publish(lab.topic("t"), b"x", qos=2, packet_id=5))
    await client.expect_type(raw.PUBREC)
    await client.abort()
    client = await lab.client("a", clean=False, properties=KEEP)
    await client.send(raw.ack(raw.PUBREL, 5))
    await client.expect("70 02 00 05")


@shows("MQTT-2.2.1-5", "MQTT-4.3.2-4", "MQTT-4.3.3-8")
async def test_ids_of_the_two_directions_are_apart(lab: Lab) -> None:
    """A client may use an identifier that the broker uses too."""
    client = await _subscriber(lab)
    one = await _deliver(lab, client, b"x", qos=1)
    two = await _deliver(lab, client, b"y", qos=2)
    for packet_id in (one.packet_id, two.packet_id):
        await client.publish(lab.topic("u"), b"x", qos=2, packet_id=packet_id)
        await client.publish(lab.topic("u"), b"x", qos=1, packet_id=packet_id)
    await client.send(raw.ack(raw.PUBACK, one.packet_id), raw.ack(raw.PUBREC, two.packet_id))
    await client.expect(raw.ack(raw.PUBREL, two.packet_id))


@shows("MQTT-3.4.2-1", "MQTT-3.3.4-1")
async def test_a_clients_own_message_comes_before_its_puback(lab: Lab) -> None:
    client = await lab.client("a")
    topic = lab.topic("t")
    await client.subscribe(topic)
    await client.send(raw.publish(topic, b"x", qos=1, packet_id=5))
    packet = await client.expect_publish(topic, b"x", qos=1)
    await client.expect("40 02 00 05")
    await client.send(raw.ack(raw.PUBACK, packet.packet_id))
    await client.send(raw.publish(topic, b"y", qos=2, packet_id=6))
    await client.expect("50 02 00 06")
    await client.send(raw.ack(raw.PUBREL, 6))
    await client.expect_publish(topic, b"y", qos=2)
    await client.expect("70 02 00 06")


# The broker sends


@shows("MQTT-4.3.2-1", "MQTT-4.3.2-2", "MQTT-4.3.3-1", "MQTT-4.3.3-2", "MQTT-2.2.1-4", "MQTT-3.3.1-3")
@pytest.mark.parametrize("qos", [1, 2])
async def test_new_messages_have_unused_ids_and_dup_0(lab: Lab, qos: int) -> None:
    client = await _subscriber(lab)
    publisher = await lab.client("p")
    ids = set()
    for number in range(20):
        # DUP of the publisher is the publisher's own affair.
        await publisher.publish(lab.topic("t"), b"x", qos=qos, packet_id=number + 1, dup=True)
        packet = await client.expect_publish(lab.topic("t"), b"x", qos=qos)
        assert not packet.dup
        ids.add(packet.packet_id)
    assert len(ids) == 20
    assert 0 not in ids


@shows("MQTT-3.3.1-3", "MQTT-3.3.1-2", "MQTT-4.3.1-1")
async def test_dup_is_not_passed_on_at_qos_0(lab: Lab) -> None:
    client = await _subscriber(lab, qos=0)
    publisher = await lab.client("p")
    await publisher.publish(lab.topic("t"), b"x", qos=1, dup=True)
    assert not (await client.expect_publish(lab.topic("t"), b"x")).dup


@shows("MQTT-4.3.3-4", "MQTT-2.2.1-5", "MQTT-3.6.1-1", "MQTT-3.6.2-1")
async def test_pubrec_is_answered_by_pubrel(lab: Lab) -> None:
    client = await _subscriber(lab)
    packet = await _deliver(lab, client, b"x", qos=2)
    await client.send(raw.ack(raw.PUBREC, packet.packet_id))
    await client.expect(b"\x62\x02" + raw.u16(packet.packet_id))
    await client.send(raw.ack(raw.PUBCOMP, packet.packet_id))
    await client.expect_nothing()


@shows("MQTT-3.6.2-1")
async def test_a_pubrec_for_nothing_is_answered(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.ack(raw.PUBREC, 99))
    await client.expect("62 03 00 63 92")


@shows("MQTT-4.3.2-3")
@pytest.mark.parametrize("first", [raw.PUBACK, raw.PUBCOMP], ids=["puback", "pubcomp"])
async def test_acks_for_nothing_do_no_harm(lab: Lab, first: int) -> None:
    client = await lab.client("a")
    await client.send(raw.ack(first, 99))
    await client.ping()


@shows("MQTT-4.13.1-1", "MQTT3-4.8.0-1", "MQTT-3.6.2-1", "MQTT-4.3.2-3", "MQTT-4.3.3-3")
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("qos", "before", "first", "reason"),
    [
        pytest.param(1, [], raw.PUBREC, None, id="PUBREC for QoS 1"),
        pytest.param(1, [], raw.PUBREC, 0x80, id="PUBREC with an error for QoS 1"),
        pytest.param(1, [], raw.PUBCOMP, None, id="PUBCOMP for QoS 1"),
        pytest.param(2, [], raw.PUBACK, None, id="PUBACK for QoS 2"),
        pytest.param(2, [], raw.PUBCOMP, None, id="PUBCOMP before PUBREL"),
        pytest.param(2, [raw.PUBREC], raw.PUBACK, None, id="PUBACK after PUBREL"),
    ],
)
@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a row"])
async def test_an_acknowledgement_of_another_kind_closes(
    lab: Lab, version: int, qos: int, before: list[int], first: int, reason: int | None, together: bool
) -> None:
    client = await lab.client("a", version=version)
    await client.subscribe((lab.topic("t"), 2))
    packet = await _deliver(lab, client, b"x", qos=qos)
    for each in before:
        await client.send(raw.ack(each, packet.packet_id))
        await client.expect_type(raw.PUBREL)
    wrong = raw.ack(first, packet.packet_id, reason if version == 5 else None)
    await client.send(wrong * 2 if together else wrong)
    await client.expect_disconnect(PROTOCOL_ERROR)


@shows("MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-3.7.2-1")
async def test_all_forms_of_an_ack_are_understood(lab: Lab) -> None:
    client = await _subscriber(lab, properties=KEEP + raw.receive_maximum(1))
    forms: list[tuple[int | None, bytes | None]] = [
        (None, None),
        (0, None),
        (0, b""),
        (0x10, None),
        (0, raw.user_property("a", "b") * 2 + b"\x1f" + raw.binary("because")),
    ]
    for reason, properties in forms:
        packet = await _deliver(lab, client, b"x", qos=1)
        await client.send(raw.ack(raw.PUBACK, packet.packet_id, reason, properties))
        packet = await _deliver(lab, client, b"x", qos=2)
        await client.send(raw.ack(raw.PUBREC, packet.packet_id, reason, properties))
        await client.expect_type(raw.PUBREL)
        reason = 0 if reason == 0x10 else reason
        await client.send(raw.ack(raw.PUBCOMP, packet.packet_id, reason, properties))
    await client.expect_nothing()


# Sending again


@shows("MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.3.2-3", "MQTT-4.3.3-3", "MQTT-3.1.2-5", "MQTT-4.1.0-1")
@pytest.mark.parametrize("qos", [1, 2])
async def test_an_unacknowledged_publish_is_sent_again_to_a_resumed_session(lab: Lab, qos: int) -> None:
    client = await _subscriber(lab)
    first = await _deliver(lab, client, b"x", qos=qos)
    await client.abort()
    client = await lab.client("subscriber", clean=False, properties=KEEP)
    again = await client.take_publish(lab.topic("t"), b"x", qos=qos)
    assert again.dup
    assert again.packet_id == first.packet_id
    await client.expect_nothing()


@shows("MQTT-4.4.0-1", "MQTT-4.3.3-5", "MQTT-4.3.3-6", "MQTT-3.6.2-1")
async def test_an_unacknowledged_pubrel_is_sent_again_and_its_publish_is_not(lab: Lab) -> None:
    client = await _subscriber(lab)
    packet = await _deliver(lab, client, b"x", qos=2)
    await client.send(raw.ack(raw.PUBREC, packet.packet_id))
    for _ in range(2):
        await client.expect(raw.ack(raw.PUBREL, packet.packet_id))
        await client.abort()
        client = await lab.client("subscriber", clean=False, properties=KEEP)
    await client.expect(raw.ack(raw.PUBREL, packet.packet_id))
    await client.send(raw.ack(raw.PUBCOMP, packet.packet_id))
    await client.expect_nothing()
    await client.disconnect()
    client = await lab.client("subscriber", clean=False, properties=KEEP)
    await client.expect_nothing()


@shows("MQTT-4.4.0-1", "MQTT-3.1.2-4", "MQTT-4.1.0-2")
async def test_nothing_is_sent_again_to_a_new_session(lab: Lab) -> None:
    client = await _subscriber(lab)
    await _deliver(lab, client, b"x", qos=1)
    await client.abort()
    client = await lab.client("subscriber", clean=True, properties=KEEP)
    await client.expect_nothing()


@shows("MQTT-4.4.0-2")
@pytest.mark.parametrize(("qos", "first"), [(1, raw.PUBACK), (2, raw.PUBREC)])
async def test_a_message_that_was_refused_is_not_sent_again(lab: Lab, qos: int, first: int) -> None:
    client = await _subscriber(lab)
    packet = await _deliver(lab, client, b"x", qos=qos)
    await client.send(raw.ack(first, packet.packet_id, 0x83))
    await client.expect_nothing()
    await client.disconnect()
    client = await lab.client("subscriber", clean=False, properties=KEEP)
    await client.expect_nothing()


@shows("MQTT-4.6.0-5", "MQTT-4.6.0-6", "MQTT-4.4.0-1")
async def test_what_is_sent_again_keeps_its_order(lab: Lab) -> None:
    client = await _subscriber(lab)
    publisher = await lab.client("p")
    payloads = [b"%d" % number for number in range(10)]
    for payload in payloads:
        await publisher.publish(lab.topic("t"), payload, qos=1)
    packets = [await client.expect_publish(lab.topic("t"), payload, qos=1) for payload in payloads]
    # One of the middle is acknowledged, and some wait behind.
    await client.send(raw.ack(raw.PUBACK, packets[4].packet_id))
    await client.ping()
    await client.abort()
    await publisher.publish(lab.topic("t"), b"late", qos=1)
    client = await lab.client("subscriber", clean=False, properties=KEEP)
    for packet in packets[:4] + packets[5:]:
        again = await client.take_publish(lab.topic("t"), packet.payload, qos=1)
        assert again.packet_id == packet.packet_id
        assert again.dup
    assert not (await client.take_publish(lab.topic("t"), b"late", qos=1)).dup


# Order


@shows("MQTT-4.6.0-5", "MQTT-4.6.0-6", "MQTT-4.5.0-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_messages_keep_their_order(lab: Lab, qos: int) -> None:
    client = await _subscriber(lab)
    other = await lab.client("other")
    await other.subscribe(lab.topic("#"))
    publisher = await lab.client("p")
    payloads = [b"%d" % number for number in range(20)]
    topic = lab.topic("t")
    await publisher.send(
        *(raw.publish(topic, p, qos=qos, packet_id=n if qos else None) for n, p in enumerate(payloads, 1))
    )
    if qos == 2:
        for number in range(1, 21):
            await publisher.expect(raw.ack(raw.PUBREC, number))
            await publisher.send(raw.ack(raw.PUBREL, number))
    for payload in payloads:
        await client.expect_publish(topic, payload, qos=qos)
        await other.expect_publish(topic, payload, qos=qos)


# Flow control


@shows("MQTT-3.3.4-9", "MQTT-4.9.0-1", "MQTT-4.9.0-2", "MQTT-4.9.0-3", "MQTT-3.3.4-10")
@pytest.mark.parametrize("maximum", [1, 3])
async def test_the_clients_receive_maximum(lab: Lab, maximum: int) -> None:
    client = await _subscriber(lab, qos=1, properties=raw.receive_maximum(maximum))
    publisher = await lab.client("p")
    topic = lab.topic("t")
    for number in range(6):
        await publisher.publish(topic, b"%d" % number, qos=1)
    packets = [await client.expect_publish(topic, b"%d" % number, qos=1) for number in range(maximum)]
    await client.expect_nothing()
    # All else goes on. (QoS 0 may; here it waits for its turn, so that nothing overtakes what was published before.)
    await client.subscribe((lab.topic("zero"), 0))
    await client.publish(lab.topic("nobody"), qos=1)
    for number in range(maximum, 6):
        await client.send(raw.ack(raw.PUBACK, packets.pop(0).packet_id))
        packets.append(await client.expect_publish(topic, b"%d" % number, qos=1))
        await client.expect_nothing()


@shows("MQTT-3.3.4-9", "MQTT-4.9.0-2", "MQTT-4.9.0-3")
async def test_a_qos_2_delivery_holds_its_place_until_pubcomp(lab: Lab) -> None:
    client = await _subscriber(lab, properties=raw.receive_maximum(1))
    publisher = await lab.client("p")
    topic = lab.topic("t")
    for payload in (b"1", b"2", b"3"):
        await publisher.publish(topic, payload, qos=2)
    packet = await client.expect_publish(topic, b"1", qos=2)
    await client.send(raw.ack(raw.PUBREC, packet.packet_id))
    await client.expect_type(raw.PUBREL)
    await client.expect_nothing()
    await client.send(raw.ack(raw.PUBCOMP, packet.packet_id))
    packet = await client.expect_publish(topic, b"2", qos=2)
    # A refusal gives the place back at once.
    await client.send(raw.ack(raw.PUBREC, packet.packet_id, 0x80))
    await client.expect_publish(topic, b"3", qos=2)


@shows("MQTT-3.3.4-9", "MQTT-4.9.0-1", "MQTT-4.4.0-1")
async def test_the_receive_maximum_of_the_new_connection_counts_for_what_is_sent_again(lab: Lab) -> None:
    client = await _subscriber(lab, qos=1)
    publisher = await lab.client("p")
    topic = lab.topic("t")
    for number in range(4):
        await publisher.publish(topic, b"%d" % number, qos=1)
        await client.expect_publish(topic, b"%d" % number, qos=1)
    await client.abort()
    client = await lab.client("subscriber", clean=False, properties=KEEP + raw.receive_maximum(2))
    packets = [await client.expect_publish(topic, b"%d" % number, qos=1) for number in range(2)]
    await client.expect_nothing()
    for number, packet in zip((2, 3), packets, strict=True):
        await client.send(raw.ack(raw.PUBACK, packet.packet_id))
        assert (await client.expect_publish(topic, b"%d" % number, qos=1)).dup


@shows("MQTT-3.3.4-7", "MQTT-4.9.0-1")
async def test_the_brokers_receive_maximum_is_enforced() -> None:
    async with laboratory(mqtt={"receive_maximum": 3}) as lab:
        client = await lab.client("a")
        assert client.connack.get(raw.RECEIVE_MAXIMUM) == 3
        topic = lab.topic("t")
        for packet_id in (1, 2, 3):
            await client.send(raw.publish(topic, b"x", qos=2, packet_id=packet_id))
            await client.expect_type(raw.PUBREC)
        # A repetition takes no new place, QoS 0 none at all.
        await client.send(raw.publish(topic, b"x", qos=2, packet_id=3, dup=True), raw.publish(topic, b"x"))
        await client.expect_type(raw.PUBREC)
        await client.send(raw.publish(topic, b"x", qos=2, packet_id=4))
        await client.expect_disconnect(0x93)


@shows("MQTT-3.3.4-7", "MQTT-4.9.0-1")
async def test_places_in_the_brokers_receive_maximum_are_given_back() -> None:
    async with laboratory(mqtt={"receive_maximum": 2}) as lab:
        client = await lab.client("a")
        for packet_id in range(1, 8):
            await client.publish(lab.topic("t"), b"x", qos=1 + packet_id % 2, packet_id=packet_id)
        await client.ping()


@shows(
    "MQTT-3.1.2-29",
    "MQTT-3.4.2-2",
    "MQTT-3.4.2-3",
    "MQTT-3.5.2-2",
    "MQTT-3.5.2-3",
    "MQTT-3.6.2-2",
    "MQTT-3.6.2-3",
    "MQTT-3.7.2-2",
    "MQTT-3.7.2-3",
)
async def test_acks_stay_within_a_small_maximum_packet_size_and_without_explanations(lab: Lab) -> None:
    properties = raw.maximum_packet_size(20) + raw.request_problem_information(0)
    client = await lab.client("a", properties=properties)
    chatty = raw.user_property("a", "b" * 50)
    await client.send(raw.publish("n", qos=1, packet_id=1, properties=chatty))
    await client.send(raw.publish("n", qos=2, packet_id=2, properties=chatty))
    await client.send(raw.ack(raw.PUBREL, 2, 0, chatty), raw.ack(raw.PUBREL, 3, 0, chatty))
    await client.send(raw.ack(raw.PUBREC, 4, 0, chatty))
    await client.send(raw.subscribe(5, (lab.topic("t"), 0)), raw.unsubscribe(6, "nothing"))
    for first in (raw.PUBACK, raw.PUBREC, raw.PUBCOMP, raw.PUBCOMP, raw.PUBREL, raw.SUBACK, raw.UNSUBACK):
        packet = await client.expect_type(first)
        assert not packet.properties
        assert len(packet.data) <= 20
