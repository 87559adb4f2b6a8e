"""paho-mqtt: what MQTT 5 adds."""

from itertools import chain

import pytest
from paho.mqtt.packettypes import PacketTypes

from tests.interop.paho_client import NEVER, PATIENCE, V5, V311, Paho, payloads, properties, publish_properties
from tests.interop.server import Broker, differs


def test_properties_travel_unchanged(broker: Broker, name: str) -> None:
    sent = publish_properties(
        ContentType="application/json; charset=utf-8",
        ResponseTopic=name + "/réponse",
        CorrelationData=bytes(range(256)),
        PayloadFormatIndicator=1,
        UserProperty=[("key", "value"), ("key", "again"), ("", "empty key"), ("empty value", ""), ("ключ", "🌡️")],
    )
    with Paho(broker, name) as client:
        client.subscribe(name, 2)
        for qos in range(3):
            client.publish(name, b"{}", qos, props=sent)
            got = client.receive().properties
            assert got is not None
            assert got.ContentType == sent.ContentType
            assert got.ResponseTopic == sent.ResponseTopic
            assert got.CorrelationData == sent.CorrelationData
            assert got.PayloadFormatIndicator == 1
            assert got.UserProperty == sent.UserProperty
            assert not hasattr(got, "MessageExpiryInterval")
            assert not hasattr(got, "TopicAlias")


def test_properties_are_kept_with_a_retained_message(broker: Broker, name: str) -> None:
    with Paho(broker, name) as client:
        client.publish(name, b"x", 1, True, publish_properties(UserProperty=("a", "b"), ContentType="text/plain"))
        client.subscribe(name, 1)
        got = client.receive()
        assert got.retain
        assert got.properties is not None
        assert got.properties.UserProperty == [("a", "b")]
        assert got.properties.ContentType == "text/plain"
        client.publish(name, b"", 1, retain=True)


def test_request_and_response(broker: Broker, name: str) -> None:
    with Paho(broker, name + "-service") as service, Paho(broker, name + "-caller") as caller:
        service.subscribe(name + "/request", 1)
        caller.subscribe(name + "/response", 1)
        for number in range(10):
            request = publish_properties(ResponseTopic=name + "/response", CorrelationData=b"%d" % number)
            caller.publish(name + "/request", b"%d" % number, 1, props=request)
            asked = service.receive()
            assert asked.properties is not None
            answer = publish_properties(CorrelationData=asked.properties.CorrelationData)
            service.publish(asked.properties.ResponseTopic, b"answer to " + asked.payload, 1, props=answer)
            answered = caller.receive()
            assert answered.payload == b"answer to %d" % number
            assert answered.properties is not None
            assert answered.properties.CorrelationData == b"%d" % number


def test_all_subscription_identifiers_of_one_message(broker: Broker, name: str) -> None:
    differs(broker, "doesn't take the highest QoS")
    with Paho(broker, name) as client:
        client.subscribe(name + "/#", 0, identifier=1)
        client.subscribe(name + "/+", 2, identifier=268_435_455)
        client.subscribe(name + "/a", 1)
        client.publish(name + "/a", b"x", 2)
        got = client.receive()
        assert got.qos == 2
        assert got.properties is not None
        assert sorted(got.properties.SubscriptionIdentifier) == [1, 268_435_455]
        client.assert_nothing_before(name + "-fence")
        client.subscribe(name + "/#", 0)  # the same filter without an identifier takes it away
        client.publish(name + "/a", b"x", 2)
        got = client.receive()
        assert got.properties is not None
        assert got.properties.SubscriptionIdentifier == [268_435_455]


def test_topic_aliases_to_the_broker(broker: Broker, name: str) -> None:
    with Paho(broker, name) as client:
        assert client.connack is not None
        assert client.connack.TopicAliasMaximum >= 2
        client.subscribe(name + "/#", 2)
        for qos in range(3):
            for alias in (1, 2):
                client.publish(f"{name}/{alias}", b"named", qos, props=publish_properties(TopicAlias=alias))
                client.publish("", b"alias only", qos, props=publish_properties(TopicAlias=alias))
                got = client.receive_many(2)
                assert {message.topic for message in got} == {f"{name}/{alias}"}
                assert payloads(got) == [b"named", b"alias only"]
        client.publish(name + "/moved", b"named", 1, props=publish_properties(TopicAlias=1))
        client.publish("", b"alias only", 1, props=publish_properties(TopicAlias=1))
        assert {message.topic for message in client.receive_many(2)} == {name + "/moved"}


@pytest.mark.parametrize(("alias", "reason"), [(0, {0x94, 0x82, 0x81}), (65535, {0x94})])
def test_an_alias_out_of_range(broker: Broker, name: str, alias: int, reason: set[int]) -> None:
    client = Paho(broker, name)
    client.connect()
    props = publish_properties(TopicAlias=1)
    props.__dict__["TopicAlias"] = alias  # paho refuses 0 by itself
    client.send(name, b"x", 0, props=props)
    assert client.disconnects.get(timeout=PATIENCE).value in reason
    client.client.loop_stop()


def test_the_expiry_interval_counts_down(broker: Broker, name: str) -> None:
    with Paho(broker, name) as client:
        client.publish(name, b"x", 1, True, publish_properties(MessageExpiryInterval=100))
        client.subscribe(name, 1)
        got = client.receive().properties
        assert got is not None
        assert 95 <= got.MessageExpiryInterval <= 100
        client.publish(name, b"", 1, retain=True)


def test_an_expired_message_is_not_delivered(broker: Broker, name: str) -> None:
    with Paho(broker, name, clean=False, expiry=NEVER) as client:
        client.subscribe(name, 1)
    with Paho(broker, name + "-p") as publisher:
        publisher.publish(name, b"short", 1, props=publish_properties(MessageExpiryInterval=1))
        publisher.publish(name, b"long", 1, props=publish_properties(MessageExpiryInterval=1000))
        publisher.subscribe(name + "/clock", 1)
        wait_seconds(broker, publisher, name, 2)
    with Paho(broker, name, clean=False, expiry=0) as client:
        assert client.session_present
        got = client.receive()
        assert got.payload == b"long"
        assert got.properties is not None
        assert got.properties.MessageExpiryInterval <= 998
        client.assert_nothing_before(name + "-fence")


def wait_seconds(broker: Broker, watcher: Paho, name: str, seconds: int) -> None:
    """By the broker's clock: until a will with that delay arrives."""
    delayed = properties(PacketTypes.WILLMESSAGE, WillDelayInterval=seconds)
    clock = Paho(broker, name + "-clock", expiry=60, will=(name + "/clock", b"now", 1, False), will_properties=delayed)
    clock.connect()
    clock.drop()
    assert watcher.receive().payload == b"now"
    Paho(broker, name + "-clock").__enter__().disconnect()


def test_no_local(broker: Broker, name: str) -> None:
    with Paho(broker, name) as client, Paho(broker, name + "-other") as other:
        client.subscribe(name, 1, noLocal=True)
        client.publish(name, b"mine", 1)
        other.publish(name, b"of another", 1)
        assert client.receive().payload == b"of another"
        client.assert_nothing_before(name + "-fence")


def test_retain_as_published(broker: Broker, name: str) -> None:
    with Paho(broker, name) as client:
        client.subscribe(name, 1, retainAsPublished=True)
        client.publish(name, b"plain", 1)
        client.publish(name, b"kept", 1, retain=True)
        assert [message.retain for message in client.receive_many(2)] == [False, True]
        client.publish(name, b"", 1, retain=True)


def test_retain_handling(broker: Broker, name: str) -> None:
    with Paho(broker, name) as client:
        client.publish(name, b"kept", 1, retain=True)
        client.subscribe(name, 1, retainHandling=2)
        client.assert_nothing_before(name + "-fence")
        client.unsubscribe(name)
        client.subscribe(name, 1, retainHandling=1)
        assert client.receive().retain
        client.subscribe(name, 1, retainHandling=1)  # not new any more
        client.assert_nothing_before(name + "-fence")
        client.publish(name, b"", 1, retain=True)


def test_reason_codes_of_acknowledgements(broker: Broker, name: str) -> None:
    with Paho(broker, name) as client:
        assert client.publish(name, b"x", 1) == 0x10  # nobody subscribes to it
        assert client.publish(name, b"x", 2) == 0x00  # paho hands out the reason of the PUBCOMP
        client.subscribe(name, 0)
        for qos in (1, 2):
            assert client.publish(name, b"x", qos) == 0x00
        assert client.unsubscribe(name, name) in ([0x00, 0x11], [0x00, 0x00])
        assert client.unsubscribe(name) == [0x11]


@pytest.mark.parametrize("topic_filter", ["{0}/#/x", "{0}/a#", "{0}/a+", "#{0}"])
def test_an_invalid_filter_ends_the_connection(broker: Broker, name: str, topic_filter: str) -> None:
    client = Paho(broker, name)
    client.connect()
    # paho checks filters by itself, so let it send a good one of the same length with the bytes changed on the way
    wanted = topic_filter.format(name)
    spelt = wanted.replace("#", "\x7e").replace("+", "\x7d")
    send = client.client._packet_queue

    def changed(command: int, packet: bytearray, *more: object) -> object:
        return send(command, packet.replace(b"\x7e", b"#").replace(b"\x7d", b"+"), *more)

    client.client._packet_queue = changed
    client.client.subscribe(spelt, 1)
    assert client.disconnects.get(timeout=PATIENCE).value in (0x81, 0x8F)
    client.client.loop_stop()


@pytest.mark.parametrize("version", [V311, V5], ids=["v311", "v5"])
def test_a_shared_subscription_gives_each_message_to_one_member(broker: Broker, name: str, version: int) -> None:
    members = [Paho(broker, f"{name}-{number}", version) for number in range(3)]
    with Paho(broker, name + "-all", version) as everyone, Paho(broker, name + "-p", version) as publisher:
        for member in members:
            member.__enter__()
            assert member.subscribe(f"$share/{name}/{name}/+", 1) == 1
        everyone.subscribe(name + "/+", 1)
        for number in range(60):
            publisher.publish(f"{name}/{number % 7}", b"%d" % number, 1)
        assert len(everyone.receive_many(60)) == 60
        # A member has what went to it before the fence, which comes to each.
        shares = []
        for member in members:
            member.subscribe(name + "-fence", 1)
        publisher.publish(name + "-fence", b"", 1)
        for member in members:
            got = []
            while (message := member.receive()).topic != name + "-fence":
                got.append(message.payload)
            shares.append(got)
            member.disconnect()
        assert sorted(chain.from_iterable(shares), key=int) == [b"%d" % number for number in range(60)]
        assert all(shares), "everyone gets some"


def test_two_groups_each_get_every_message(broker: Broker, name: str) -> None:
    with Paho(broker, name + "-a") as first, Paho(broker, name + "-b") as second, Paho(broker, name) as publisher:
        first.subscribe(f"$share/a-{name}/{name}", 1)
        second.subscribe(f"$share/b-{name}/{name}", 1)
        for number in range(10):
            publisher.publish(name, b"%d" % number, 1)
        expected = [b"%d" % number for number in range(10)]
        assert payloads(first.receive_many(10)) == expected
        assert payloads(second.receive_many(10)) == expected


def test_no_retained_messages_for_a_shared_subscription(broker: Broker, name: str) -> None:
    differs(broker, "sends them")
    with Paho(broker, name) as client:
        client.publish(name, b"kept", 1, retain=True)
        client.subscribe(f"$share/{name}/{name}", 1)
        client.assert_nothing_before(name + "-fence")
        client.publish(name, b"", 1, retain=True)


def test_the_session_expiry_of_the_disconnect_counts(broker: Broker, name: str) -> None:
    client = Paho(broker, name, clean=True, expiry=1000)
    client.connect()
    client.subscribe(name, 1)
    client.disconnect(0, properties(PacketTypes.DISCONNECT, SessionExpiryInterval=0))
    with Paho(broker, name, clean=False) as client:
        assert not client.session_present


def test_the_receive_maximum_of_a_client_is_kept(broker: Broker, name: str) -> None:
    client = Paho(broker, name, V5, connect_properties={"ReceiveMaximum": 3}, manual_ack=True)
    with client, Paho(broker, name + "-p") as publisher:
        client.subscribe(name, 1)
        client.subscribe(name + "-fence", 0)
        for number in range(10):
            publisher.publish(name, b"%d" % number, 1)
        publisher.publish(name + "-fence", b"fence", 0)
        waiting = client.receive_many(3)
        assert payloads(waiting) == [b"0", b"1", b"2"]
        for number in range(3, 10):
            client.client.ack(waiting.pop(0).mid, 1)
            message = client.receive()
            while message.topic != name:  # QoS 0 needs no place in the window
                message = client.receive()
            assert message.payload == b"%d" % number
            waiting.append(message)
        for message in waiting:
            client.client.ack(message.mid, 1)


def test_a_maximum_packet_size_of_the_client_is_kept(broker: Broker, name: str) -> None:
    small = Paho(broker, name, connect_properties={"MaximumPacketSize": 200})
    with small as client, Paho(broker, name + "-p") as publisher:
        client.subscribe(name, 1)
        publisher.publish(name, b"x" * 1000, 1)
        publisher.publish(name, b"small", 1)
        assert client.receive().payload == b"small"


def test_topic_aliases_to_the_client(broker: Broker, name: str) -> None:
    """paho doesn't resolve aliases: it hands out what is on the wire."""
    differs(broker, "sends no aliases")
    client = Paho(broker, name, connect_properties={"TopicAliasMaximum": 5})
    with client:
        client.subscribe(name, 1)
        for _ in range(3):
            client.publish(name, b"x", 1)
        got = client.receive_many(3)
        aliases = {message.properties.TopicAlias for message in got if message.properties is not None}
        assert len(aliases) == 1
        assert [message.topic for message in got] == [name, "", ""]


def test_a_user_property_in_subscribe_and_disconnect_is_taken(broker: Broker, name: str) -> None:
    client = Paho(broker, name, connect_properties={"UserProperty": [("a", "b")] * 20, "RequestProblemInformation": 1})
    client.__enter__()
    _, mid = client.client.subscribe(name, 1, properties=properties(PacketTypes.SUBSCRIBE, UserProperty=[("c", "d")]))
    assert mid is not None
    assert client._subacks.wait(mid)[0].value == 1
    reason = client.disconnect(0, properties(PacketTypes.DISCONNECT, UserProperty=[("e", "f")], ReasonString="enough"))
    assert reason is not None
    assert reason.value == 0
