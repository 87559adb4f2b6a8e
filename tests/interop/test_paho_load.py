"""paho-mqtt: large messages, many clients, full windows."""

import hashlib
import itertools
import threading

import pytest

from tests.interop.paho_client import PATIENCE, V5, VERSIONS, Paho, payloads
from tests.interop.server import MAX_PACKET_SIZE, Broker, differs

every_version = pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS.keys())


def body(size: int) -> bytes:
    """Not the same everywhere: a piece that is lost or doubled shows."""
    digest = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(128))
    return (digest * (size // len(digest) + 1))[:size]


@every_version
@pytest.mark.parametrize("qos", range(3))
def test_payload_sizes_around_the_borders(broker: Broker, name: str, version: int, qos: int) -> None:
    with Paho(broker, name, version) as client:
        client.subscribe(name, qos)
        for size in (127, 128, 16_383, 16_384, 65_535, 65_536, 500_000):
            client.publish(name, body(size), qos)
            assert client.receive().payload == body(size)


def largest_payload(topic: str, version: int, qos: int) -> int:
    """What fills a packet up to the maximum: fixed header of five bytes, topic, id, no properties."""
    return MAX_PACKET_SIZE - 5 - 2 - len(topic) - (2 if qos else 0) - (1 if version == V5 else 0)


@every_version
@pytest.mark.parametrize("qos", range(3))
def test_the_largest_packet(broker: Broker, name: str, version: int, qos: int) -> None:
    payload = body(largest_payload(name, version, qos))
    with Paho(broker, name, version) as client:
        client.subscribe(name, qos)
        client.publish(name, payload, qos)
        assert client.receive().payload == payload


@every_version
def test_one_byte_more_ends_the_connection(broker: Broker, name: str, version: int) -> None:
    differs(broker, "doesn't count the fixed header")
    payload = body(largest_payload(name, version, 1) + 1)
    client = Paho(broker, name, version)
    client.connect()
    if version == V5:
        assert client.connack is not None
        assert client.connack.MaximumPacketSize == MAX_PACKET_SIZE
    client.send(name, payload, 1)
    reason = client.disconnects.get(timeout=PATIENCE)
    client.client.loop_stop()
    # The broker may close while paho is still sending, and then paho doesn't read the DISCONNECT.
    assert reason.is_failure
    assert reason.value in (0x95, 0x80)


@every_version
def test_fifty_clients_talk_in_a_ring(broker: Broker, name: str, version: int) -> None:
    clients = [Paho(broker, f"{name}-{number}", version) for number in range(50)]
    for number, client in enumerate(clients):
        client.__enter__()
        client.subscribe(f"{name}/{number}", 1)
    for number, client in enumerate(clients):
        for turn in range(10):
            client.send(f"{name}/{(number + 1) % 50}", b"%d %d" % (number, turn), 1)
    for number, client in enumerate(clients):
        expected = [b"%d %d" % ((number - 1) % 50, turn) for turn in range(10)]
        assert payloads(client.receive_many(10)) == expected
    for client in clients:
        client.disconnect()


@every_version
def test_one_to_fifty(broker: Broker, name: str, version: int) -> None:
    clients = [Paho(broker, f"{name}-{number}", version) for number in range(50)]
    for number, client in enumerate(clients):
        client.__enter__()
        client.subscribe(name, number % 3)
    with Paho(broker, name, version) as publisher:
        for number in range(10):
            publisher.publish(name, b"%d" % number, 2)
        for number, client in enumerate(clients):
            got = client.receive_many(10)
            assert payloads(got) == [b"%d" % index for index in range(10)]
            assert {message.qos for message in got} == {number % 3}
    for client in clients:
        client.disconnect()


@pytest.mark.parametrize(
    ("version", "qos", "window"),
    # what a window is to 3.1.1 and to 5.0 differs where it is larger than the broker's; QoS 0 has none
    [*itertools.product(VERSIONS.values(), range(3), [0]), *itertools.product([V5], [1, 2], [1, 90, 10_000])],
)
def test_a_burst_through_windows_of_every_size(broker: Broker, name: str, version: int, qos: int, window: int) -> None:
    """paho heeds its own setting (0 is no limit) and not the broker's receive maximum."""
    if window != 1 and window != 90:
        differs(broker, "drops QoS 2 messages beyond its window")
    number = 600 if window == 1 else 3000
    with (
        Paho(broker, name + "-s", version) as subscriber,
        Paho(broker, name + "-p", version, max_inflight=window) as publisher,
    ):
        subscriber.subscribe(name, qos)
        sent = [publisher.send(name, b"%d" % index, qos) for index in range(number)]
        for info in sent:
            publisher.wait_published(info)
        assert payloads(subscriber.receive_many(number)) == [b"%d" % index for index in range(number)]


@every_version
def test_many_connect_at_once(broker: Broker, name: str, version: int) -> None:
    together = threading.Barrier(30)
    done: list[int] = []

    def come_and_go(number: int) -> None:
        together.wait(PATIENCE)
        for _ in range(3):
            with Paho(broker, f"{name}-{number}", version):
                done.append(number)

    threads = [threading.Thread(target=come_and_go, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE * 2)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(done) == sorted([*range(30)] * 3)
