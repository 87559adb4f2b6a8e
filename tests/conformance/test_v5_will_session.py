"""MQTT 5.0, sessions (3.1.2.4, 3.1.2.11.2, 4.1) and wills (3.1.2.5): what outlives a connection. Clocks:
test_timers."""

import pytest

from tests.conformance import raw
from tests.conformance.lab import Lab
from tests.conformance.raw import Will
from tests.conformance.statements import shows

KEEP = raw.session_expiry(100)


# Sessions


@shows("MQTT-3.1.2-6", "MQTT-3.2.2-3", "MQTT-3.1.4-4")
async def test_clean_start_0_without_a_session(lab: Lab) -> None:
    client = await lab.client("a", clean=False)
    assert not client.connack.session_present
    await client.ping()


@shows("MQTT-3.1.2-5", "MQTT-3.2.2-3", "MQTT-3.1.2-23", "MQTT-3.1.3-2", "MQTT-4.1.0-1")
async def test_clean_start_0_resumes(lab: Lab) -> None:
    client, publisher = await lab.client("a", properties=KEEP), await lab.client("p")
    topic = lab.topic("t")
    await client.subscribe(topic)
    await client.disconnect()
    for number, qos in enumerate((1, 2, 1)):
        await publisher.publish(topic, b"%d" % number, qos=qos)
    client = await lab.client("a", clean=False, properties=KEEP)
    assert client.connack.session_present
    packets = [await client.expect_publish(topic, b"%d" % number, qos=qos) for number, qos in enumerate((1, 2, 1))]
    for packet in packets:
        assert not packet.dup
        await client.acknowledge(packet)
    await publisher.publish(topic, b"x", qos=0)
    await client.take_publish(topic, b"x")


@shows("MQTT-3.1.2-5", "MQTT-3.8.4-3", "MQTT-3.3.4-3", "MQTT-3.8.3-3")
async def test_a_resumed_subscription_keeps_its_options(lab: Lab) -> None:
    client, publisher = await lab.client("a", properties=KEEP), await lab.client("p")
    topic = lab.topic("t")
    option = raw.options(1, no_local=True, as_published=True)
    await client.subscribe((topic, option), properties=raw.subscription_identifier(12))
    await client.abort()
    client = await lab.client("a", clean=False, properties=KEEP)
    await client.publish(topic, b"own", qos=1)
    await publisher.publish(topic, b"x", qos=2, retain=True)
    packet = await client.take_publish(topic, b"x", qos=1)
    assert packet.retain
    assert packet.all(raw.SUBSCRIPTION_IDENTIFIER) == [12]


@shows("MQTT-3.1.2-4", "MQTT-3.2.2-2", "MQTT-3.1.4-4")
async def test_clean_start_1_throws_the_session_away(lab: Lab) -> None:
    client, publisher = await lab.client("a", properties=KEEP), await lab.client("p")
    topic = lab.topic("t")
    await client.subscribe(topic)
    await client.disconnect()
    await publisher.publish(topic, b"x", qos=1)
    client = await lab.client("a", clean=True, properties=KEEP)
    assert not client.connack.session_present
    await publisher.publish(topic, b"y", qos=1)
    await client.expect_nothing()
    # The new session is one like any other.
    await client.disconnect()
    assert (await lab.client("a", clean=False)).connack.session_present


@shows("MQTT-4.1.0-2", "MQTT-3.2.2-3")
@pytest.mark.parametrize("properties", [b"", raw.session_expiry(0)], ids=["absent", "0"])
@pytest.mark.parametrize("polite", [True, False])
async def test_a_session_without_an_expiry_interval_ends_with_its_connection(
    lab: Lab, properties: bytes, polite: bool
) -> None:
    client = await lab.client("a", clean=False, properties=properties)
    await client.subscribe(lab.topic("t"))
    if polite:
        await client.disconnect()
    else:
        # A protocol error, so that the end has been dealt with.
        await client.send("00 00")
        await client.rest()
    client = await lab.client("a", clean=False)
    assert not client.connack.session_present
    await client.publish(lab.topic("t"), qos=1)
    await client.expect_nothing()


@shows("MQTT-4.1.0-1", "MQTT-3.1.2-5", "MQTT-3.1.4-3")
async def test_a_session_is_resumed_from_a_live_connection(lab: Lab) -> None:
    """Expiry 0 ends a session with its connection, but a takeover goes before that."""
    old, publisher = await lab.client("a", properties=KEEP), await lab.client("p")
    topic = lab.topic("t")
    await old.subscribe(topic)
    await publisher.publish(topic, b"x", qos=1)
    await old.expect_publish(topic, b"x", qos=1)
    new = await lab.client("a", clean=False, properties=KEEP)
    assert new.connack.session_present
    await old.expect_disconnect(0x8E)
    assert (await new.take_publish(topic, b"x", qos=1)).dup
    await publisher.publish(topic, b"y", qos=1)
    await new.take_publish(topic, b"y", qos=1)


@shows("MQTT-3.1.4-3", "MQTT-3.1.2-4")
async def test_a_takeover_with_clean_start_1_begins_a_new_session(lab: Lab) -> None:
    old = await lab.client("a", properties=KEEP)
    await old.subscribe(lab.topic("t"))
    new = await lab.client("a", clean=True, properties=KEEP)
    assert not new.connack.session_present
    await old.expect_disconnect(0x8E)
    await new.publish(lab.topic("t"), b"x", qos=1)
    await new.expect_nothing()


@shows("MQTT-3.1.4-3")
async def test_the_old_connections_end_does_not_disturb_the_new(lab: Lab) -> None:
    clients = [await lab.client("a", clean=False, properties=KEEP)]
    await clients[0].subscribe(lab.topic("t"))
    for _ in range(10):
        clients.append(await lab.client("a", clean=False, properties=KEEP))
        assert clients[-1].connack.session_present
    *old, last = clients
    for client in old:
        await client.expect_disconnect(0x8E)
        await client.abort()
    await last.publish(lab.topic("t"), b"x")
    await last.take_publish(lab.topic("t"), b"x")


@shows("MQTT-3.1.2-23", "MQTT-3.14.2-2")
async def test_the_expiry_interval_can_be_changed_at_disconnect(lab: Lab) -> None:
    client = await lab.client("a", properties=KEEP)
    await client.disconnect(0, raw.session_expiry(0))
    client = await lab.client("a", clean=False, properties=KEEP)
    assert not client.connack.session_present
    await client.disconnect(0, raw.session_expiry(200))
    assert (await lab.client("a", clean=False)).connack.session_present


@shows("MQTT-3.1.2-23", "MQTT-4.13.1-1")
async def test_an_expiry_interval_at_disconnect_where_there_was_none_is_a_protocol_error(lab: Lab) -> None:
    client = await lab.client("a")
    await client.send(raw.disconnect(0, raw.session_expiry(1)))
    await client.expect_disconnect(0x82)
    assert not (await lab.client("a", clean=False)).connack.session_present


@shows("MQTT-3.1.2-23", "MQTT-4.1.0-2")
async def test_the_expiry_interval_of_the_last_connection_counts(lab: Lab) -> None:
    client = await lab.client("a", properties=KEEP)
    await client.disconnect()
    client = await lab.client("a", clean=False)
    assert client.connack.session_present
    await client.disconnect()
    assert not (await lab.client("a", clean=False)).connack.session_present


@shows("MQTT-3.1.2-23")
async def test_an_expiry_interval_without_end(lab: Lab) -> None:
    client = await lab.client("a", properties=raw.session_expiry(0xFFFFFFFF))
    await client.disconnect()
    assert (await lab.client("a", clean=False)).connack.session_present


# Wills


@shows("MQTT-3.1.2-7", "MQTT-3.1.2-8", "MQTT-3.1.2-10", "MQTT-3.1.2-14", "MQTT-3.1.2-15")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
async def test_a_connection_that_breaks_publishes_the_will(lab: Lab, qos: int, retain: bool) -> None:
    watcher = await lab.client("w")
    topic = lab.topic("will")
    await watcher.subscribe((topic, raw.options(2, as_published=True)))
    client = await lab.client("a", will=Will(topic, b"gone", qos, retain))
    await watcher.expect_nothing(after=client)
    await client.abort()
    packet = await watcher.take_publish(topic, b"gone", qos=qos)
    assert packet.retain == retain
    later = await lab.client("later")
    await later.subscribe(topic)
    if retain:
        assert (await later.take_publish(topic, b"gone", qos=qos)).retain
    await later.expect_nothing()
    # Once is enough: it is gone from the session.
    client = await lab.client("a")
    await client.abort()
    await watcher.expect_nothing()


@shows("MQTT-3.14.4-3", "MQTT-3.1.2-8", "MQTT-3.1.2-10")
@pytest.mark.parametrize("packet", [raw.disconnect(), raw.disconnect(0), raw.disconnect(0, b"")])
async def test_disconnect_throws_the_will_away(lab: Lab, packet: bytes) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe(lab.topic("will"))
    client = await lab.client("a", will=Will(lab.topic("will")), properties=KEEP)
    await client.send(packet)
    await client.expect_close()
    await watcher.expect_nothing()
    client = await lab.client("a", clean=False)
    await client.disconnect()
    await watcher.expect_nothing()


@shows("MQTT-3.1.2-8", "MQTT-3.14.2-1")
@pytest.mark.parametrize("reason", [0x04, 0x80, 0x83, 0x93, 0x97])
async def test_disconnect_with_another_reason_publishes_the_will(lab: Lab, reason: int) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe((lab.topic("will"), 0))
    client = await lab.client("a", will=Will(lab.topic("will")))
    await client.disconnect(reason)
    await watcher.take_publish(lab.topic("will"), b"gone")


@shows("MQTT-3.1.2-8")
async def test_a_protocol_error_publishes_the_will(lab: Lab) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe((lab.topic("will"), 0))
    client = await lab.client("a", will=Will(lab.topic("will")))
    await client.send("00 00")
    await client.rest()
    await watcher.take_publish(lab.topic("will"), b"gone")


@shows("MQTT-3.1.2-8", "MQTT-3.1.4-3")
@pytest.mark.parametrize("clean", [False, True])
async def test_a_takeover_publishes_the_will_of_the_old_connection(lab: Lab, clean: bool) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe((lab.topic("will"), 0))
    await lab.client("a", will=Will(lab.topic("will"), b"old"), properties=KEEP)
    new = await lab.client("a", clean=clean, will=Will(lab.topic("will"), b"new"), properties=KEEP)
    await watcher.take_publish(lab.topic("will"), b"old")
    await watcher.expect_nothing(after=new)
    await new.abort()
    await watcher.take_publish(lab.topic("will"), b"new")


@shows("MQTT-3.1.3-9", "MQTT-3.1.2-8")
async def test_a_takeover_within_the_will_delay_stops_the_will(lab: Lab) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe((lab.topic("will"), 0))
    delayed = Will(lab.topic("will"), properties=raw.will_delay(50))
    await lab.client("a", will=delayed, properties=KEEP)
    new = await lab.client("a", clean=False, properties=KEEP)
    await watcher.expect_nothing(after=new)


@shows("MQTT-3.1.2-8")
@pytest.mark.parametrize("broken_first", [False, True])
async def test_a_new_session_ends_the_old_and_its_will_delay(lab: Lab, broken_first: bool) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe((lab.topic("will"), 0))
    delayed = Will(lab.topic("will"), properties=raw.will_delay(50))
    old = await lab.client("a", will=delayed, properties=KEEP)
    if broken_first:
        await old.send("00 00")
        await old.rest()
        await watcher.expect_nothing()
    await lab.client("a", clean=True)
    await watcher.take_publish(lab.topic("will"), b"gone")


@shows("MQTT-3.1.2-8", "MQTT-4.1.0-2")
async def test_session_expiry_0_ends_the_will_delay_at_once(lab: Lab) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe((lab.topic("will"), 0))
    client = await lab.client("a", will=Will(lab.topic("will"), properties=raw.will_delay(50)))
    await client.abort()
    await watcher.take_publish(lab.topic("will"), b"gone")


@shows("MQTT-3.1.2-8", "MQTT-3.1.2-23")
async def test_session_expiry_0_at_disconnect_ends_the_will_delay_at_once(lab: Lab) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe((lab.topic("will"), 0))
    client = await lab.client("a", will=Will(lab.topic("will"), properties=raw.will_delay(50)), properties=KEEP)
    await client.disconnect(0x04, raw.session_expiry(0))
    await watcher.take_publish(lab.topic("will"), b"gone")


@shows("MQTT-3.1.2-9", "MQTT-3.1.3-10")
async def test_a_will_has_its_properties(lab: Lab) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe((lab.topic("will"), 0))
    users = [("z", "1"), ("a", "2"), ("z", "3")]
    properties = (
        raw.payload_format(1)
        + raw.content_type("c")
        + raw.response_topic("r")
        + raw.correlation_data(b"d")
        + raw.message_expiry(100)
        + raw.will_delay(0)
        + b"".join(raw.user_property(*user) for user in users)
    )
    client = await lab.client("a", will=Will(lab.topic("will"), b"\xc3\xa9", properties=properties))
    await client.abort()
    packet = await watcher.expect_publish(lab.topic("will"), b"\xc3\xa9")
    assert packet.all(raw.USER_PROPERTY) == users
    assert [packet.get(number) for number in (0x01, 0x03, 0x08, 0x09)] == [1, "c", "r", b"d"]
    assert packet.get(0x18) is None
    expiry = packet.get(raw.MESSAGE_EXPIRY)
    assert isinstance(expiry, int)
    assert 90 <= expiry <= 100


@shows("MQTT-3.1.2-14", "MQTT-3.3.1-6")
async def test_an_empty_will_is_published(lab: Lab) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe((lab.topic("will"), 0))
    client = await lab.client("a", will=Will(lab.topic("will"), b""))
    await client.abort()
    await watcher.take_publish(lab.topic("will"), b"")


@shows("MQTT-3.1.2-7")
async def test_a_connect_without_a_will_takes_the_old_one_away(lab: Lab) -> None:
    watcher = await lab.client("w")
    await watcher.subscribe((lab.topic("will"), 0))
    delayed = Will(lab.topic("will"), properties=raw.will_delay(50))
    client = await lab.client("a", will=delayed, properties=KEEP)
    await client.send("00 00")
    await client.rest()
    client = await lab.client("a", clean=False, properties=KEEP)
    await client.send("00 00")
    await client.rest()
    await lab.client("a", clean=True)
    await watcher.expect_nothing()


@shows("MQTT-3.1.2-8")
async def test_a_will_reaches_its_own_client_in_its_stored_session(lab: Lab) -> None:
    client = await lab.client("a", will=Will(lab.topic("will"), qos=1), properties=KEEP)
    await client.subscribe(lab.topic("will"))
    await client.send("00 00")
    await client.rest()
    client = await lab.client("a", clean=False)
    await client.take_publish(lab.topic("will"), b"gone", qos=1)
