"""paho-mqtt: sessions that outlive their connections, wills, takeover."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from paho.mqtt.packettypes import PacketTypes

from tests.interop.paho_client import NEVER, PATIENCE, V5, V31, V311, VERSIONS, Paho, payloads, properties
from tests.interop.server import Broker

every_version = pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS.keys())


def persistent(broker: Broker, client_id: str, version: int, **more: bool | int) -> Paho:
    return Paho(broker, client_id, version, clean=False, expiry=NEVER if version == V5 else None, **more)


@contextmanager
def session(broker: Broker, client_id: str, version: int) -> Iterator[None]:
    """Ends the persistent session afterwards: the broker is shared by many tests."""
    yield
    Paho(broker, client_id, version, clean=True).__enter__().disconnect()


@every_version
@pytest.mark.parametrize("qos", [1, 2])
def test_offline_messages_come_with_the_resumed_session(broker: Broker, name: str, version: int, qos: int) -> None:
    with session(broker, name, version):
        with persistent(broker, name, version) as client:
            assert not client.session_present
            client.subscribe(name + "/#", qos)
        with Paho(broker, name + "-p", version) as publisher:
            for number in range(20):
                publisher.publish(f"{name}/{number}", b"%d" % number, qos)
        with persistent(broker, name, version) as client:
            if version != V31:
                assert client.session_present
            messages = client.receive_many(20)
            assert payloads(messages) == [b"%d" % number for number in range(20)]
            assert {message.qos for message in messages} == {qos}
            client.publish(name + "/live", b"live", qos)
            assert client.receive().payload == b"live"


@every_version
def test_a_clean_start_ends_the_old_session(broker: Broker, name: str, version: int) -> None:
    with persistent(broker, name, version) as client:
        client.subscribe(name, 1)
    with Paho(broker, name + "-p", version) as publisher:
        publisher.publish(name, b"for nobody", 1)
    with Paho(broker, name, version, clean=True) as client:
        assert not client.session_present
        client.assert_nothing_before(name + "-fence")
    with session(broker, name, version), persistent(broker, name, version) as client:
        assert not client.session_present


@pytest.mark.parametrize("version", [V311, V5], ids=["v311", "v5"])
def test_a_session_without_expiry_ends_with_its_connection(broker: Broker, name: str, version: int) -> None:
    with Paho(broker, name, version, clean=True) as client:
        client.subscribe(name, 1)
    with Paho(broker, name, V5, clean=False) as client:
        assert not client.session_present


@every_version
def test_what_is_not_acknowledged_comes_again(broker: Broker, name: str, version: int) -> None:
    with session(broker, name, version):
        client = persistent(broker, name, version, manual_ack=True)
        client.connect()
        client.subscribe(name, 1)
        with Paho(broker, name + "-p", version) as publisher:
            for number in range(3):
                publisher.publish(name, b"%d" % number, 1)
        first = client.receive_many(3)
        assert payloads(first) == [b"0", b"1", b"2"]
        client.client.ack(first[0].mid, 1)
        client.disconnect()
        with persistent(broker, name, version) as client:
            again = client.receive_many(2)
            assert payloads(again) == [b"1", b"2"]
            assert all(message.dup for message in again)
            assert [message.mid for message in again] == [message.mid for message in first[1:]]


@pytest.mark.parametrize(
    ("version", "qos", "retain"),
    [(V31, 1, True), (V311, 1, True), *itertools.product([V5], range(3), [False, True])],
)
def test_the_will_of_a_dropped_connection(broker: Broker, name: str, version: int, qos: int, retain: bool) -> None:
    with Paho(broker, name + "-w", version) as watcher:
        watcher.subscribe(name, 2)
        dying = Paho(broker, name, version, will=(name, b"gone", qos, retain))
        dying.connect()
        dying.drop()
        message = watcher.receive()
        assert (message.payload, message.qos, message.retain) == (b"gone", qos, False)
        if retain:
            watcher.subscribe(name, 2)
            assert watcher.receive().retain
            watcher.publish(name, b"", 1, retain=True)
            watcher.receive()
        watcher.assert_nothing_before(name + "-fence")


@every_version
def test_no_will_after_disconnect(broker: Broker, name: str, version: int) -> None:
    with Paho(broker, name + "-w", version) as watcher:
        watcher.subscribe(name, 2)
        Paho(broker, name, version, will=(name, b"gone", 1, False)).__enter__().disconnect()
        watcher.assert_nothing_before(name + "-fence")


def test_disconnect_with_will(broker: Broker, name: str) -> None:
    with Paho(broker, name + "-w") as watcher:
        watcher.subscribe(name, 1)
        Paho(broker, name, will=(name, b"as asked", 1, False)).__enter__().disconnect(0x04)
        assert watcher.receive().payload == b"as asked"


def test_a_will_has_properties(broker: Broker, name: str) -> None:
    will_properties = properties(
        PacketTypes.WILLMESSAGE,
        UserProperty=("cause", "power"),
        ContentType="text/plain",
        ResponseTopic=name + "/answer",
        CorrelationData=b"\0\1\2",
        PayloadFormatIndicator=1,
        MessageExpiryInterval=60,
    )
    with Paho(broker, name + "-w") as watcher:
        watcher.subscribe(name, 1)
        dying = Paho(broker, name, will=(name, "grüße".encode(), 1, False), will_properties=will_properties)
        dying.connect()
        dying.drop()
        got = watcher.receive()
        assert got.payload == "grüße".encode()
        assert got.properties is not None
        assert got.properties.UserProperty == [("cause", "power")]
        assert got.properties.ContentType == "text/plain"
        assert got.properties.ResponseTopic == name + "/answer"
        assert got.properties.CorrelationData == b"\0\1\2"
        assert got.properties.PayloadFormatIndicator == 1
        assert 58 <= got.properties.MessageExpiryInterval <= 60


def test_a_delayed_will_is_not_sent_when_the_client_comes_back(broker: Broker, name: str) -> None:
    with Paho(broker, name + "-w") as watcher:
        watcher.subscribe(name, 1)
        delayed = properties(PacketTypes.WILLMESSAGE, WillDelayInterval=30)
        dying = Paho(broker, name, expiry=60, will=(name, b"gone", 1, False), will_properties=delayed)
        dying.connect()
        dying.drop()
        Paho(broker, name, clean=False).__enter__().disconnect()
        watcher.assert_nothing_before(name + "-fence")


@every_version
def test_the_same_client_id_takes_over(broker: Broker, name: str, version: int) -> None:
    with Paho(broker, name + "-w", version) as watcher:
        watcher.subscribe(name, 1)
        first = Paho(broker, name, version, will=(name, b"taken over", 1, False))
        first.connect()
        with Paho(broker, name, version) as second:
            reason = first.disconnects.get(timeout=PATIENCE)
            first.client.loop_stop()
            if version == V5 and broker.name != "mosquitto":  # which closes so abruptly that the DISCONNECT is lost
                assert reason.value == 0x8E
            assert watcher.receive().payload == b"taken over"
            second.subscribe(name + "/second", 1)
            second.publish(name + "/second", b"mine", 1)
            assert second.receive().payload == b"mine"


@every_version
def test_takeover_of_a_persistent_session_keeps_its_subscriptions(broker: Broker, name: str, version: int) -> None:
    with session(broker, name, version):
        first = persistent(broker, name, version)
        first.connect()
        first.subscribe(name, 2)
        with persistent(broker, name, version) as second:
            first.disconnects.get(timeout=PATIENCE)
            first.client.loop_stop()
            if version != V31:
                assert second.session_present
            second.publish(name, b"kept", 2)
            assert second.receive().payload == b"kept"


@every_version
def test_a_storm_of_reconnects(broker: Broker, name: str, version: int) -> None:
    """One client id again and again, every other time without a DISCONNECT, with a message in each."""
    with session(broker, name, version), Paho(broker, name + "-p", version) as publisher:
        for number in range(20):
            client = persistent(broker, name, version)
            client.connect()
            client.subscribe(name, 1)
            publisher.publish(name, b"%d" % number, 1)
            # what was not acknowledged in time comes again, so: until the new one is there
            while client.receive().payload != b"%d" % number:
                pass
            if number % 2:
                client.drop()
            else:
                client.disconnect()


@every_version
def test_takeover_storm(broker: Broker, name: str, version: int) -> None:
    """Twenty connections with the same client id, none of which leaves by itself."""
    with ExitStack() as stack:
        clients = []
        for _ in range(20):
            client = Paho(broker, name, version)
            client.connect()
            stack.callback(client.client.loop_stop)
            clients.append(client)
        for client in clients[:-1]:
            client.disconnects.get(timeout=PATIENCE)
        last = clients[-1]
        last.subscribe(name, 1)
        last.publish(name, b"still here", 1)
        assert last.receive().payload == b"still here"
        last.disconnect()


def test_an_empty_client_id(broker: Broker, name: str) -> None:
    with Paho(broker, "", V5) as client:
        assert client.connack is not None
        assert client.connack.AssignedClientIdentifier
    with Paho(broker, "", V311) as client:
        client.subscribe(name, 1)
        client.publish(name, b"x", 1)
        assert client.receive().payload == b"x"
