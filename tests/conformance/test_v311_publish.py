"""MQTT 3.1.1, PUBLISH and its acknowledgements (3.3 to 3.7), the QoS exchanges (4.3, 4.4, 4.6)."""

import pytest

from tests.conformance import raw
from tests.conformance.lab import Client, Lab
from tests.conformance.statements import shows

V311 = 4


async def _client(lab: Lab, name: str, *, clean: bool = True) -> Client:
    return await lab.client(name, version=V311, clean=clean)


def _publish(topic: str, payload: bytes = b"", **settings: object) -> bytes:
    return raw.publish(topic, payload, version=V311, **settings)  # type: ignore[arg-type]


@shows("MQTT3-3.3.4-1", "MQTT3-2.3.1-5", "MQTT3-4.3.1-1", "MQTT3-3.3.1-2")
async def test_qos_0(lab: Lab) -> None:
    client = await _client(lab, "a")
    topic = lab.topic("t")
    await client.subscribe((topic, 2))
    await client.send(_publish(topic, b"x"))
    await client.expect(_publish(topic, b"x"))
    await client.expect_nothing()


@shows("MQTT3-3.3.4-1", "MQTT3-2.3.1-6", "MQTT3-4.3.2-2", "MQTT3-4.3.2-1")
async def test_qos_1(lab: Lab) -> None:
    client = await _client(lab, "a")
    topic = lab.topic("t")
    await client.subscribe((topic, 1))
    await client.send(_publish(topic, b"x", qos=1, packet_id=0xABCD))
    packet = await client.expect_publish(topic, b"x", qos=1)
    assert packet.data == _publish(topic, b"x", qos=1, packet_id=packet.packet_id)
    await client.expect("40 02 ab cd")
    await client.send(raw.ack(raw.PUBACK, packet.packet_id))
    await client.expect_nothing()


@shows("MQTT3-3.3.4-1", "MQTT3-2.3.1-6", "MQTT3-4.3.3-1", "MQTT3-4.3.3-2", "MQTT3-3.6.1-1")
async def test_qos_2(lab: Lab) -> None:
    client, other = await _client(lab, "a"), await _client(lab, "b")
    topic = lab.topic("t")
    await other.subscribe((topic, 2))
    await client.send(_publish(topic, b"x", qos=2, packet_id=0xABCD))
    await client.expect("50 02 ab cd")
    await client.send("62 02 ab cd")
    await client.expect("70 02 ab cd")
    packet = await other.expect_publish(topic, b"x", qos=2)
    assert packet.data == _publish(topic, b"x", qos=2, packet_id=packet.packet_id)
    await other.send(raw.ack(raw.PUBREC, packet.packet_id))
    await other.expect(b"\x62\x02" + raw.u16(packet.packet_id))
    await other.send(raw.ack(raw.PUBCOMP, packet.packet_id))
    await other.expect_nothing()


@shows("MQTT3-3.3.1-4", "MQTT3-4.8.0-1")
async def test_qos_3(lab: Lab) -> None:
    client = await _client(lab, "a")
    await client.send(_publish(lab.topic("t"), b"x", qos=3, packet_id=1))
    await client.expect_close()


@shows("MQTT3-3.3.1-2")
async def test_dup_at_qos_0(lab: Lab) -> None:
    client = await _client(lab, "a")
    await client.send(_publish(lab.topic("t"), b"x", dup=True))
    await client.expect_close()


@shows("MQTT3-2.3.1-1", "MQTT3-4.8.0-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(_publish("a", qos=1, packet_id=0), id="publish-1"),
        pytest.param(_publish("a", qos=2, packet_id=0), id="publish-2"),
        pytest.param(raw.subscribe(0, ("a", 0), version=V311), id="subscribe"),
        pytest.param(raw.unsubscribe(0, "a", version=V311), id="unsubscribe"),
    ],
)
async def test_packet_id_0(lab: Lab, packet: bytes) -> None:
    client = await _client(lab, "a")
    await client.send(packet)
    await client.expect_close()


@shows("MQTT3-3.3.2-2", "MQTT3-4.7.1-1", "MQTT3-4.7.3-1", "MQTT3-3.3.2-1")
@pytest.mark.parametrize("topic", ["#", "+", "a/#", "a/+", "a+", "#a", "", "$share/g/t"])
async def test_topics_that_are_none(lab: Lab, topic: str) -> None:
    client = await _client(lab, "a")
    await client.send(_publish(topic, b"x"))
    await client.expect_close()


@shows("MQTT3-4.7.3-3")
async def test_the_longest_topic(lab: Lab) -> None:
    client = await _client(lab, "a")
    topic = lab.topic("x" * (65_535 - len(lab.topic(""))))
    assert await client.subscribe((topic, 0)) == [0]
    await client.publish(topic, b"x")
    await client.expect_publish(topic, b"x")


# Retained messages


@shows("MQTT3-3.3.1-5", "MQTT3-3.3.1-6", "MQTT3-3.3.1-8")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
async def test_a_retained_message_goes_to_new_subscriptions(lab: Lab, published: int, granted: int) -> None:
    client, later = await _client(lab, "a"), await _client(lab, "b")
    topic = lab.topic("t")
    await client.publish(topic, b"x", qos=published, retain=True)
    await client.ping()
    await later.subscribe((topic, granted))
    packet = await later.take_publish(topic, b"x", qos=min(published, granted))
    assert packet.retain
    await later.expect_nothing()


@shows("MQTT3-3.3.1-7", "MQTT3-3.3.1-5")
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_retained_message_replaces_the_last(lab: Lab, qos: int) -> None:
    client = await _client(lab, "a")
    topic = lab.topic("t")
    await client.publish(topic, b"1", qos=1, retain=True)
    await client.publish(topic, b"2", qos=qos, retain=True)
    await client.subscribe((topic, 0))
    await client.expect_publish(topic, b"2")
    await client.expect_nothing()


@shows("MQTT3-3.3.1-9")
async def test_retain_is_0_for_subscriptions_that_were_there(lab: Lab) -> None:
    client = await _client(lab, "a")
    topic = lab.topic("t")
    await client.subscribe((topic, 0))
    await client.publish(topic, b"x", retain=True)
    await client.expect(_publish(topic, b"x"))


@shows("MQTT3-3.3.1-10", "MQTT3-3.3.1-11")
async def test_an_empty_retained_message_removes(lab: Lab) -> None:
    client, later = await _client(lab, "a"), await _client(lab, "b")
    topic = lab.topic("t")
    await client.publish(topic, b"x", retain=True)
    await client.subscribe((topic, 0))
    await client.expect_publish(topic, b"x")
    await client.publish(topic, b"", retain=True)
    await client.expect(_publish(topic, b""))
    await later.subscribe((topic, 0))
    await later.expect_nothing()


@shows("MQTT3-3.3.1-12")
@pytest.mark.parametrize("payload", [b"y", b""])
async def test_a_message_without_retain_leaves_the_retained_one_alone(lab: Lab, payload: bytes) -> None:
    client = await _client(lab, "a")
    topic = lab.topic("t")
    await client.publish(topic, b"x", retain=True)
    await client.publish(topic, payload)
    await client.subscribe((topic, 0))
    await client.expect_publish(topic, b"x")
    await client.publish(lab.topic("u"), payload)
    await client.subscribe((lab.topic("u"), 0))
    await client.expect_nothing()


# The broker receives


@shows("MQTT3-4.3.2-2")
@pytest.mark.parametrize("dup", [False, True])
async def test_after_puback_the_same_id_is_a_new_message(lab: Lab, dup: bool) -> None:
    client = await _client(lab, "a")
    topic = lab.topic("t")
    await client.subscribe((topic, 0))
    for _ in range(2):
        await client.send(_publish(topic, b"x", qos=1, packet_id=5, dup=dup))
        await client.expect_publish(topic, b"x")
        await client.expect("40 02 00 05")


@shows("MQTT3-4.3.3-2")
@pytest.mark.parametrize("dup", [False, True])
async def test_a_qos_2_publish_repeated_before_pubrel_is_delivered_once(lab: Lab, dup: bool) -> None:
    client, other = await _client(lab, "a"), await _client(lab, "b")
    topic = lab.topic("t")
    await other.subscribe((topic, 0))
    for round in range(2):
        for _ in range(3):
            await client.send(_publish(topic, b"%d" % round, qos=2, packet_id=5, dup=dup))
            await client.expect("50 02 00 05")
        await client.send("62 02 00 05")
        await client.expect("70 02 00 05")
        await other.expect_publish(topic, b"%d" % round)
        await other.expect_nothing(after=client)


@shows("MQTT3-4.3.3-2", "MQTT3-4.4.0-1", "MQTT3-3.1.2-4")
async def test_a_qos_2_publish_repeated_over_a_new_connection_is_delivered_once(lab: Lab) -> None:
    client, other = await _client(lab, "a", clean=False), await _client(lab, "b")
    topic = lab.topic("t")
    await other.subscribe((topic, 0))
    await client.send(_publish(topic, b"x", qos=2, packet_id=5))
    await client.expect("50 02 00 05")
    await client.abort()
    client = await _client(lab, "a", clean=False)
    await client.send(_publish(topic, b"x", qos=2, packet_id=5, dup=True))
    await client.expect("50 02 00 05")
    await client.send("62 02 00 05")
    await client.expect("70 02 00 05")
    await other.expect_publish(topic, b"x")
    await other.expect_nothing(after=client)


@shows("MQTT3-4.3.3-2")
async def test_a_pubrel_for_nothing_is_answered(lab: Lab) -> None:
    client = await _client(lab, "a")
    await client.send("62 02 00 63")
    await client.expect("70 02 00 63")


@shows("MQTT3-3.3.5-2", "MQTT3-3.3.4-1")
@pytest.mark.parametrize(("qos", "answer"), [(1, "40 02 00 07"), (2, "50 02 00 07")])
async def test_a_publish_that_nobody_subscribes_to_is_acknowledged_as_any_other(
    lab: Lab, qos: int, answer: str
) -> None:
    client = await _client(lab, "a")
    await client.send(_publish(lab.topic("t"), b"x", qos=qos, packet_id=7))
    await client.expect(answer)


# The broker sends


@shows("MQTT3-2.3.1-4", "MQTT3-4.3.2-1", "MQTT3-4.3.3-1", "MQTT3-3.3.1-3")
@pytest.mark.parametrize("qos", [1, 2])
async def test_new_messages_have_unused_ids_and_dup_0(lab: Lab, qos: int) -> None:
    client, publisher = await _client(lab, "a"), await _client(lab, "p")
    topic = lab.topic("t")
    await client.subscribe((topic, 2))
    ids = set()
    for number in range(20):
        await publisher.publish(topic, b"x", qos=qos, packet_id=number + 1, dup=True)
        packet = await client.expect_publish(topic, b"x", qos=qos)
        assert not packet.dup
        ids.add(packet.packet_id)
    assert len(ids) == 20
    assert 0 not in ids


@shows("MQTT3-4.4.0-1", "MQTT3-3.3.1-1", "MQTT3-2.3.1-4", "MQTT3-4.3.2-1", "MQTT3-4.3.3-1")
@pytest.mark.parametrize("qos", [1, 2])
async def test_an_unacknowledged_publish_is_sent_again(lab: Lab, qos: int) -> None:
    client, publisher = await _client(lab, "a", clean=False), await _client(lab, "p")
    topic = lab.topic("t")
    await client.subscribe((topic, 2))
    await publisher.publish(topic, b"x", qos=qos)
    first = await client.expect_publish(topic, b"x", qos=qos)
    await client.abort()
    client = await _client(lab, "a", clean=False)
    again = await client.take_publish(topic, b"x", qos=qos)
    assert again.dup
    assert again.packet_id == first.packet_id
    await client.expect_nothing()


@shows("MQTT3-4.4.0-1", "MQTT3-4.3.3-1")
async def test_an_unacknowledged_pubrel_is_sent_again_and_its_publish_is_not(lab: Lab) -> None:
    client, publisher = await _client(lab, "a", clean=False), await _client(lab, "p")
    topic = lab.topic("t")
    await client.subscribe((topic, 2))
    await publisher.publish(topic, b"x", qos=2)
    packet = await client.expect_publish(topic, b"x", qos=2)
    await client.send(raw.ack(raw.PUBREC, packet.packet_id))
    await client.expect(raw.ack(raw.PUBREL, packet.packet_id))
    await client.abort()
    client = await _client(lab, "a", clean=False)
    await client.expect(raw.ack(raw.PUBREL, packet.packet_id))
    await client.send(raw.ack(raw.PUBCOMP, packet.packet_id))
    await client.expect_nothing()


@shows("MQTT3-4.6.0-1", "MQTT3-4.4.0-1", "MQTT3-4.6.0-6")
async def test_what_is_sent_again_keeps_its_order(lab: Lab) -> None:
    client, publisher = await _client(lab, "a", clean=False), await _client(lab, "p")
    topic = lab.topic("t")
    await client.subscribe((topic, 1))
    payloads = [b"%d" % number for number in range(10)]
    for payload in payloads:
        await publisher.publish(topic, payload, qos=1)
        await client.expect_publish(topic, payload, qos=1)
    await client.abort()
    client = await _client(lab, "a", clean=False)
    for payload in payloads:
        assert (await client.expect_publish(topic, payload, qos=1)).dup


@shows("MQTT3-4.6.0-5", "MQTT3-4.6.0-6", "MQTT3-4.5.0-1")
@pytest.mark.parametrize("qos", [0, 1])
async def test_messages_keep_their_order(lab: Lab, qos: int) -> None:
    clients = [await _client(lab, name) for name in "ab"]
    publisher = await _client(lab, "p")
    topic = lab.topic("t")
    for client in clients:
        await client.subscribe((topic, qos))
    payloads = [b"%d" % number for number in range(20)]
    await publisher.send(
        *(_publish(topic, p, qos=qos, packet_id=n if qos else None) for n, p in enumerate(payloads, 1))
    )
    for payload in payloads:
        for client in clients:
            await client.take_publish(topic, payload, qos=qos)


@shows("MQTT3-3.3.5-1")
async def test_overlapping_subscriptions_the_highest_qos_counts(lab: Lab) -> None:
    client, publisher = await _client(lab, "a"), await _client(lab, "p")
    topic = lab.topic("a/b")
    await client.subscribe((lab.topic("#"), 0), (lab.topic("a/+"), 2), (topic, 1))
    await publisher.publish(topic, b"x", qos=2)
    await client.take_publish(topic, b"x", qos=2)
    await client.expect_nothing(after=publisher)


@shows("MQTT3-7.0.0-2", "MQTT3-3.3.4-1")
async def test_a_3_1_1_client_gets_nothing_of_5_0(lab: Lab) -> None:
    client, publisher = await _client(lab, "a"), await lab.client("p")
    topic = lab.topic("t")
    await client.subscribe((topic, 1))
    properties = raw.user_property("a", "b") + raw.message_expiry(100) + raw.content_type("c")
    await publisher.publish(topic, b"x", qos=1, properties=properties)
    packet = await client.expect_publish(topic, b"x", qos=1)
    assert packet.data == _publish(topic, b"x", qos=1, packet_id=packet.packet_id)
    await publisher.publish(topic, b"y", properties=properties)
    await client.expect(_publish(topic, b"y"))


@shows("MQTT3-7.0.0-2")
async def test_a_5_0_client_gets_the_message_of_a_3_1_1_client(lab: Lab) -> None:
    client, publisher = await lab.client("a"), await _client(lab, "p")
    topic = lab.topic("t")
    await client.subscribe((topic, 1))
    await publisher.send(_publish(topic, b"x"))
    await client.expect(raw.publish(topic, b"x"))
