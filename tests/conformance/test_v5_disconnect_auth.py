"""MQTT 5.0, DISCONNECT (3.14), AUTH (3.15) and enhanced authentication (4.12)."""

import pytest

from tests.conformance import raw
from tests.conformance.lab import Lab, refused
from tests.conformance.statements import shows

PROTOCOL_ERROR = 0x82


@shows("MQTT-3.14.4-2", "MQTT-3.14.2-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param("e0 00", id="without-a-reason"),
        pytest.param("e0 01 00", id="with-a-reason"),
        pytest.param("e0 02 00 00", id="with-empty-properties"),
        pytest.param(raw.disconnect(0, b"\x1f" + raw.binary("why") + raw.user_property("a", "b") * 2), id="explained"),
        pytest.param("e0 01 82", id="with-an-error"),
    ],
)
async def test_disconnect_is_answered_by_the_close_alone(lab: Lab, packet: bytes | str) -> None:
    client = await lab.client("a")
    await client.send(packet)
    await client.expect_close()


@shows("MQTT-3.14.4-1")
async def test_what_follows_disconnect_is_not_processed(lab: Lab) -> None:
    client, watcher = await lab.client("a"), await lab.client("w")
    await watcher.subscribe((lab.topic("#"), 0))
    await client.send(
        raw.publish(lab.topic("t"), b"before"), raw.disconnect(), raw.publish(lab.topic("t"), b"after"), raw.PINGREQ
    )
    await client.expect_close()
    await watcher.take_publish(lab.topic("t"), b"before")
    await watcher.expect_nothing()


@shows("MQTT-3.14.0-1", "MQTT-3.2.2-7")
async def test_no_disconnect_before_a_connack_of_success(lab: Lab) -> None:
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), flags=0x03))
    await refused(client, 0x81)


@shows("MQTT-3.14.2-2", "MQTT-3.14.2-3", "MQTT-3.14.2-4", "MQTT-3.1.2-24", "MQTT-3.14.2-1")
async def test_the_brokers_disconnect_within_a_small_maximum_packet_size(lab: Lab) -> None:
    settings = raw.maximum_packet_size(30) + raw.session_expiry(100)
    client = await lab.client("a", properties=settings)
    await client.send(raw.publish("", properties=raw.topic_alias(1)))
    packet = await client.expect_disconnect(PROTOCOL_ERROR)
    assert packet is not None
    assert len(packet.data) <= 30
    assert packet.get(raw.SESSION_EXPIRY) is None


@shows("MQTT-3.14.2-2", "MQTT-3.14.4-1", "MQTT-3.14.4-2")
async def test_nothing_comes_after_the_brokers_disconnect(lab: Lab) -> None:
    client, publisher = await lab.client("a", properties=raw.session_expiry(100)), await lab.client("p")
    topic = lab.topic("t")
    await client.subscribe(topic)
    await client.send("00 00")
    await publisher.publish(topic, b"x", qos=1)
    packet = await client.receive()
    # The message may have been on its way before the bad packet.
    if packet.type == raw.PUBLISH:
        packet = await client.receive()
    assert packet.type == raw.DISCONNECT
    assert packet.get(raw.SESSION_EXPIRY) is None
    await client.expect_close()


@shows("MQTT-3.14.2-1", "MQTT-3.1.4-3")
async def test_the_short_form_of_the_brokers_disconnect(lab: Lab) -> None:
    """Explanations are not asked for, so that nothing follows the reason."""
    properties = raw.request_problem_information(0)
    client = await lab.client("a", properties=properties)
    other = await lab.client("a", properties=properties)
    await client.expect("e0 01 8e")
    await client.expect_close()
    await other.send("00 00")
    await other.expect("e0 01 81")
    await other.expect_close()


# Enhanced authentication: no method is configured


@shows("MQTT-4.12.0-1", "MQTT-3.1.4-2", "MQTT-4.13.2-1", "MQTT-3.2.2-8", "MQTT-4.12.0-4")
async def test_an_authentication_method_that_is_not_supported(lab: Lab) -> None:
    client = await lab.wire()
    method = raw.authentication_method("NO-SUCH-METHOD") + raw.authentication_data(b"x")
    await client.send(raw.connect(lab.id("a"), properties=method))
    await refused(client, 0x8C, 0x87)


@shows("MQTT-4.12.0-6")
async def test_no_auth_and_no_method_to_a_client_that_named_none(lab: Lab) -> None:
    client = await lab.client("a")
    assert client.connack.get(raw.AUTHENTICATION_METHOD) is None
    assert client.connack.get(raw.AUTHENTICATION_DATA) is None


@shows("MQTT-4.12.1-1", "MQTT-4.12.1-2", "MQTT-4.13.1-1")
@pytest.mark.parametrize("reason", [0x18, 0x19, 0x00])
async def test_auth_from_a_client_that_named_no_method(lab: Lab, reason: int) -> None:
    client = await lab.client("a")
    await client.send(raw.auth(reason, raw.authentication_method("SCRAM-SHA-256")))
    await client.expect_disconnect(PROTOCOL_ERROR)


@shows("MQTT-3.15.2-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param("f0 00", id="short-form"),
        pytest.param("f0 02 19 00", id="no-method"),
        pytest.param(raw.auth(0x19, raw.authentication_method("x") * 2), id="method-twice"),
        pytest.param(raw.auth(0x19, raw.authentication_data(b"x")), id="data-alone"),
    ],
)
async def test_auth_that_is_a_protocol_error(lab: Lab, packet: bytes | str) -> None:
    client = await lab.client("a")
    await client.send(packet)
    await client.expect_disconnect(PROTOCOL_ERROR)
