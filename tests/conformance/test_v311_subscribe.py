"""MQTT 3.1.1, SUBSCRIBE and UNSUBSCRIBE (3.8 to 3.11) and matching (4.7)."""

import pytest

from tests.conformance import raw
from tests.conformance.lab import Client, Lab, laboratory
from tests.conformance.statements import shows
from tests.conformance.test_v5_subscribe import MATCHES, MISMATCHES

V311 = 4


async def _client(lab: Lab, name: str, *, clean: bool = True) -> Client:
    return await lab.client(name, version=V311, clean=clean)


@shows("MQTT3-3.8.4-1", "MQTT3-3.8.4-2", "MQTT3-2.3.1-7", "MQTT3-3.8.4-5", "MQTT3-3.9.3-2")
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_suback(lab: Lab, qos: int) -> None:
    client = await _client(lab, "a")
    await client.send(raw.subscribe(0xFFFE, (lab.topic("t"), qos), version=V311))
    await client.expect(f"90 03 ff fe 0{qos}")


@shows("MQTT3-3.8.4-4", "MQTT3-3.8.4-5", "MQTT3-3.9.3-1")
async def test_one_suback_for_several_filters_in_their_order(lab: Lab) -> None:
    client = await _client(lab, "a")
    qos = [2, 0, 1, 1, 0, 2]
    assert await client.subscribe(*((lab.topic(str(n)), q) for n, q in enumerate(qos))) == qos
    await client.expect_nothing()


@shows("MQTT3-3.8.3-3", "MQTT3-3.10.3-2", "MQTT3-4.8.0-1")
@pytest.mark.parametrize(
    "packet", [raw.subscribe(1, version=V311), raw.unsubscribe(1, version=V311)], ids=["subscribe", "unsubscribe"]
)
async def test_no_filter_at_all(lab: Lab, packet: bytes) -> None:
    client = await _client(lab, "a")
    await client.send(packet)
    await client.expect_close()


@shows("MQTT3-3.8.3-4")
@pytest.mark.parametrize("option", [0x03, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80])
async def test_reserved_bits_of_the_requested_qos(lab: Lab, option: int) -> None:
    client = await _client(lab, "a")
    await client.send(raw.subscribe(1, (lab.topic("t"), option), version=V311))
    await client.expect_close()


@shows("MQTT3-4.7.1-2", "MQTT3-4.7.1-3", "MQTT3-4.7.3-1", "MQTT3-4.8.0-1")
@pytest.mark.parametrize("filter", ["", "#/a", "a#", "a/#/b", "+a", "a+", "a/b+/c"])
async def test_filters_that_are_none(lab: Lab, filter: str) -> None:
    client = await _client(lab, "a")
    await client.send(raw.subscribe(1, (filter, 0), version=V311))
    # As malformed, or as a subscription that failed.
    data = b""
    try:
        data = await client.receive_bytes()
    except AssertionError:
        return
    assert data == bytes.fromhex("9003000180")


@shows("MQTT3-3.8.3-2", "MQTT3-3.9.3-2")
async def test_wildcards_where_they_are_not_served() -> None:
    async with laboratory(mqtt={"wildcard_subscriptions": False}) as lab:
        client = await _client(lab, "a")
        await client.send(raw.subscribe(1, (lab.topic("#"), 1), (lab.topic("t"), 1), version=V311))
        await client.expect("90 04 00 01 80 01")


@shows("MQTT3-3.8.4-3", "MQTT3-3.3.1-8")
async def test_subscribing_again_replaces_and_sends_retained_messages_again(lab: Lab) -> None:
    client, publisher = await _client(lab, "a"), await _client(lab, "p")
    topic = lab.topic("t")
    await publisher.publish(topic, b"r", qos=1, retain=True)
    for qos in (1, 0):
        await client.subscribe((topic, qos))
        assert (await client.take_publish(topic, b"r", qos=qos)).retain
    await publisher.publish(topic, b"x", qos=1)
    await client.take_publish(topic, b"x", qos=0)
    await client.expect_nothing(after=publisher)


@shows("MQTT3-3.8.4-6")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
async def test_the_lower_of_the_published_and_the_granted_qos(lab: Lab, published: int, granted: int) -> None:
    client, publisher = await _client(lab, "a"), await _client(lab, "p")
    topic = lab.topic("t")
    await client.subscribe((topic, granted))
    await publisher.publish(topic, b"x", qos=published)
    await client.take_publish(topic, b"x", qos=min(published, granted))


@shows("MQTT3-3.10.4-4", "MQTT3-3.10.4-5", "MQTT3-2.3.1-7", "MQTT3-3.10.4-6")
async def test_unsuback(lab: Lab) -> None:
    client = await _client(lab, "a")
    await client.subscribe(lab.topic("1"))
    await client.send(raw.unsubscribe(0xFFFE, *(lab.topic(n) for n in "123"), version=V311))
    await client.expect("b0 02 ff fe")
    await client.send(raw.unsubscribe(0xFFFD, lab.topic("1"), version=V311))
    await client.expect("b0 02 ff fd")
    await client.expect_nothing()


@shows("MQTT3-3.10.4-1", "MQTT3-3.10.4-2")
async def test_unsubscribe_goes_by_the_filter(lab: Lab) -> None:
    client, publisher = await _client(lab, "a"), await _client(lab, "p")
    topic = lab.topic("a/b")
    await client.subscribe((topic, 0), (lab.topic("a/+"), 0))
    await client.send(raw.unsubscribe(1, lab.topic("a/+"), lab.topic("#"), lab.topic("A/b"), version=V311))
    await client.expect("b0 02 00 01")
    await publisher.publish(topic, b"x")
    await publisher.publish(lab.topic("a/c"), b"x")
    await publisher.ping()
    await client.expect_publish(topic, b"x")
    await client.expect_nothing()


@shows("MQTT3-3.10.4-3", "MQTT3-3.10.4-2")
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_delivery_that_had_begun_goes_on_after_unsubscribe(lab: Lab, qos: int) -> None:
    client, publisher = await _client(lab, "a", clean=False), await _client(lab, "p")
    topic = lab.topic("t")
    await client.subscribe((topic, 2))
    await publisher.publish(topic, b"x", qos=qos)
    await client.expect_publish(topic, b"x", qos=qos)
    await client.send(raw.unsubscribe(1, topic, version=V311))
    await client.expect_type(raw.UNSUBACK)
    await publisher.publish(topic, b"y", qos=qos)
    await client.disconnect()
    client = await _client(lab, "a", clean=False)
    await client.take_publish(topic, b"x", qos=qos)
    await client.expect_nothing()


@shows("MQTT3-3.3.2-3", "MQTT3-4.7.1-2", "MQTT3-4.7.1-3", "MQTT3-4.7.3-4", "MQTT3-4.5.0-1")
@pytest.mark.parametrize(
    ("filter", "topic", "matches"),
    [(filter, topic, True) for filter, topic in MATCHES] + [(filter, topic, False) for filter, topic in MISMATCHES],
)
async def test_matching(lab: Lab, filter: str, topic: str, matches: bool) -> None:
    client = await _client(lab, "a")
    await client.subscribe((lab.topic(filter), 0))
    await client.publish(lab.topic(topic), b"x")
    if matches:
        await client.expect_publish(lab.topic(topic), b"x")
    await client.expect_nothing()


@shows("MQTT3-4.7.2-1")
@pytest.mark.parametrize("filter", ["#", "+/{}", "+/#"])
async def test_a_wildcard_at_the_front_does_not_match_dollar_topics(lab: Lab, filter: str) -> None:
    client, publisher = await _client(lab, "a"), await _client(lab, "p")
    topic = f"$conformance/{lab.prefix}"
    await client.subscribe((filter.format(lab.prefix), 0))
    await publisher.publish(topic, b"x")
    await publisher.ping()
    await client.send(raw.PINGREQ)
    # Another test's retained messages may match.
    while (packet := await client.receive()).type == raw.PUBLISH:
        assert packet.topic != topic


async def test_a_3_1_1_client_can_share_a_subscription(lab: Lab) -> None:
    members = [await _client(lab, name) for name in "abc"]
    topic = lab.topic("t")
    for member in members:
        assert await member.subscribe((f"$share/g/{topic}", 1)) == [1]
    publisher = await _client(lab, "p")
    for number in range(6):
        await publisher.publish(topic, b"%d" % number, qos=1)
        await members[number % 3].take_publish(topic, b"%d" % number, qos=1)
    for member in members:
        await member.expect_nothing()
