"""paho-mqtt: what is published arrives, as it should."""

import itertools
import threading

import pytest

from tests.interop.paho_client import PATIENCE, V5, V31, V311, VERSIONS, Paho, payloads
from tests.interop.server import Broker, differs

every_version = pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS.keys())


@every_version
def test_a_message_arrives_with_the_lower_of_both_qos(broker: Broker, name: str, version: int) -> None:
    with Paho(broker, name + "-s", version) as subscriber, Paho(broker, name + "-p", version) as publisher:
        for published, subscribed in itertools.product(range(3), repeat=2):
            topic = f"{name}/{published}{subscribed}"
            assert subscriber.subscribe(topic, subscribed) == subscribed
            for number in range(5):
                assert publisher.publish(topic, b"%d" % number, published) == 0
            messages = subscriber.receive_many(5)
            assert payloads(messages) == [b"0", b"1", b"2", b"3", b"4"]
            assert {message.qos for message in messages} == {min(published, subscribed)}
            assert not any(message.retain or message.dup for message in messages)
        subscriber.assert_nothing_before(name + "-fence", publisher)


@pytest.mark.parametrize(
    ("publisher_version", "subscriber_version"),
    [pair for pair in itertools.product(VERSIONS.values(), repeat=2) if pair[0] != pair[1]],
)
def test_versions_meet(broker: Broker, name: str, publisher_version: int, subscriber_version: int) -> None:
    with (
        Paho(broker, name + "-s", subscriber_version) as subscriber,
        Paho(broker, name + "-p", publisher_version) as publisher,
    ):
        subscriber.subscribe(name, 2)
        for qos in range(3):
            publisher.publish(name, b"%d" % qos, qos)
            message = subscriber.receive()
            assert (message.payload, message.qos) == (b"%d" % qos, qos)


@every_version
@pytest.mark.parametrize("qos", range(3))
def test_retained(broker: Broker, name: str, version: int, qos: int) -> None:
    with Paho(broker, name, version) as client:
        client.publish(name + "/a", b"old", qos, retain=True)
        client.publish(name + "/a", b"new", qos, retain=True)
        client.publish(name + "/b", b"other", qos, retain=True)
        client.publish(name + "/c", b"gone", qos, retain=True)
        client.publish(name + "/c", b"", qos, retain=True)
        client.subscribe(name + "/+", 2)
        got = {message.topic: message for message in client.receive_many(2)}
        assert {topic: message.payload for topic, message in got.items()} == {
            name + "/a": b"new",
            name + "/b": b"other",
        }
        assert all(message.retain and message.qos == qos for message in got.values())
        client.publish(name + "/a", b"live", qos, retain=True)
        live = client.receive()
        assert (live.payload, live.retain) == (b"live", False)
        client.assert_nothing_before(name + "-fence")
        for topic in ("/a", "/b"):
            client.publish(name + topic, b"", 1, retain=True)


@every_version
def test_retained_comes_again_with_each_subscribe(broker: Broker, name: str, version: int) -> None:
    with Paho(broker, name, version) as client:
        client.publish(name, b"kept", 1, retain=True)
        for _ in range(2):
            client.subscribe(name, 1)
            message = client.receive()
            assert (message.payload, message.retain) == (b"kept", True)
        client.publish(name, b"", 1, retain=True)


@every_version
def test_overlapping_subscriptions_give_one_copy_with_the_highest_qos(broker: Broker, name: str, version: int) -> None:
    differs(broker, "sends a copy for each subscription, or one with the QoS of any")
    with Paho(broker, name, version) as client:
        client.subscribe_many((name + "/#", 0), (name + "/+/x", 2), (name + "/a/x", 1))
        client.publish(name + "/a/x", b"once", 2)
        message = client.receive()
        assert (message.payload, message.qos) == (b"once", 2)
        client.assert_nothing_before(name + "-fence")


@every_version
def test_wildcards(broker: Broker, name: str, version: int) -> None:
    topics = ["", "/", "/a", "/a/b", "/a/b/c", "/$x", "//"]
    expected = {
        "/+": ["/", "/a", "/$x"],
        "/#": topics,
        "/a/#": ["/a", "/a/b", "/a/b/c"],
        "/+/b": ["/a/b"],
        "/+/+": ["/a/b", "//"],
        "/a/+/c": ["/a/b/c"],
        "": [""],
    }
    with Paho(broker, name, version) as client:
        for topic_filter, matching in expected.items():
            client.subscribe(name + topic_filter, 1)
            for topic in topics:
                client.publish(name + topic, topic.encode(), 1)
            got = [message.topic.removeprefix(name) for message in client.receive_many(len(matching))]
            assert got == matching, topic_filter
            client.assert_nothing_before(name + "-fence")
            client.unsubscribe(name + topic_filter)


@every_version
def test_topics_below_a_dollar_sign_need_a_filter_that_names_them(broker: Broker, name: str, version: int) -> None:
    with Paho(broker, name, version) as client:
        client.subscribe("+/" + name, 1)
        client.publish("$test/" + name, b"hidden", 1)
        client.publish("test/" + name, b"seen", 1)
        assert client.receive().payload == b"seen"
        client.assert_nothing_before(name + "-fence")


@every_version
def test_topics_of_any_script(broker: Broker, name: str, version: int) -> None:
    with Paho(broker, name, version) as client:
        for level in ("ünïcode", "温度", "🌡️", "with space", "tab-less", "עברית", "a" * 2000, "é"):
            topic = f"{name}/{level}/x"
            client.subscribe(f"{name}/{level}/+", 1)
            client.publish(topic, level.encode(), 1)
            message = client.receive()
            assert (message.topic, message.payload) == (topic, level.encode())


@every_version
def test_unsubscribe_ends_delivery(broker: Broker, name: str, version: int) -> None:
    with Paho(broker, name, version) as client:
        client.subscribe_many((name + "/a", 1), (name + "/b", 1))
        reasons = client.unsubscribe(name + "/a", name + "/never")
        if version == V5:
            assert reasons == [0x00, 0x11]
        client.publish(name + "/a", b"unwanted", 1)
        client.publish(name + "/b", b"wanted", 1)
        assert client.receive().payload == b"wanted"
        client.assert_nothing_before(name + "-fence")


@every_version
def test_many_filters_in_one_packet(broker: Broker, name: str, version: int) -> None:
    filters = [(f"{name}/{number}", number % 3) for number in range(200)]
    with Paho(broker, name, version) as client:
        assert client.subscribe_many(*filters) == [qos for _, qos in filters]
        for topic, _ in filters:
            client.send(topic, topic.encode(), 1)
        got = client.receive_many(len(filters))
        assert {(message.topic, message.qos) for message in got} == {(topic, min(qos, 1)) for topic, qos in filters}


@every_version
def test_order_of_each_publisher_is_kept(broker: Broker, name: str, version: int) -> None:
    with Paho(broker, name + "-s", version) as subscriber:
        subscriber.subscribe(name + "/#", 2)
        publishers = [Paho(broker, f"{name}-{number}", version, max_inflight=10) for number in range(4)]
        for publisher in publishers:
            publisher.__enter__()
        start = threading.Barrier(len(publishers))

        def publish(publisher: Paho, topic: str, qos: int) -> None:
            start.wait(PATIENCE)
            for number in range(100):
                publisher.send(topic, b"%d" % number, qos)

        threads = [
            threading.Thread(target=publish, args=(publisher, f"{name}/{number}", number % 3))
            for number, publisher in enumerate(publishers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        by_topic: dict[str, list[bytes]] = {}
        for message in subscriber.receive_many(400):
            by_topic.setdefault(message.topic, []).append(message.payload)
        for publisher in publishers:
            publisher.disconnect()
        assert by_topic == {f"{name}/{number}": [b"%d" % n for n in range(100)] for number in range(4)}


@pytest.mark.parametrize("version", [V31, V311], ids=["v31", "v311"])
def test_an_empty_payload_is_a_message(broker: Broker, name: str, version: int) -> None:
    with Paho(broker, name, version) as client:
        client.subscribe(name, 2)
        for qos in range(3):
            client.publish(name, b"", qos)
            message = client.receive()
            assert (message.payload, message.qos) == (b"", qos)
