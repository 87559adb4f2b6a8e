from tests.conformance import raw
from trunkline.mqtt.awaiting_rel import AwaitingRel, Received
from trunkline.mqtt.batch import PublishBatch
from trunkline.mqtt.inflight import Miss
from trunkline.mqtt.versions import Version


def received(maximum: int, *sizes: int, max_bytes: int = 0) -> AwaitingRel[str]:
    awaiting = AwaitingRel[str](maximum, max_bytes)
    for packet_id, size in enumerate(sizes, 1):
        assert awaiting.receive(packet_id, f"message {packet_id}", size) is Received.NEW
    return awaiting


def test_a_packet_id_is_new_once_until_it_is_released() -> None:
    awaiting = received(10, 5)
    assert awaiting.receive(1, "again", 5) is Received.DUPLICATE
    assert 1 in awaiting
    assert awaiting.release(1) == "message 1"
    assert 1 not in awaiting
    assert awaiting.receive(1, "next", 5) is Received.NEW


def test_an_unknown_packet_id_is_told() -> None:
    awaiting = received(10, 5)
    assert awaiting.release(2) is Miss.NOT_FOUND
    assert (len(awaiting), awaiting.byte_size) == (1, 5)


def test_no_more_than_the_maximum_may_be_open() -> None:
    awaiting = received(2, 5, 5)
    assert awaiting.receive(3, "", 0) is Received.FULL
    assert awaiting.receive(2, "", 0) is Received.DUPLICATE
    assert len(awaiting) == 2
    awaiting.release(1)
    assert awaiting.receive(3, "", 0) is Received.NEW


def test_no_more_than_so_many_bytes_may_be_held() -> None:
    awaiting = received(0, 40, 60, max_bytes=100)
    assert awaiting.receive(3, "", 1) is Received.FULL
    assert awaiting.byte_size == 100
    awaiting.release(1)
    assert awaiting.receive(3, "", 40) is Received.NEW
    assert awaiting.byte_size == 100


def test_zero_is_no_maximum() -> None:
    assert len(received(0, *[1_000_000] * 500)) == 500


def test_an_export_restores() -> None:
    copy = AwaitingRel[str](10)
    copy.restore(received(10, 3, 4).export())
    assert copy.export() == [(1, 3, "message 1"), (2, 4, "message 2")]
    assert copy.byte_size == 7


def test_a_burst_takes_its_memory_until_the_last_of_it_is_released() -> None:
    packets = [raw.publish("t", b"x", qos=2, packet_id=n, version=4) for n in range(1, 6)]
    size = len(packets[0])
    burst = PublishBatch(["t"], 2, Version.V311, b"".join(packets), range(0, 5 * size, size), [1, 2, 3, 4, 5])
    awaiting = AwaitingRel[object](10)
    assert awaiting.receive_burst(burst)
    assert awaiting.byte_size == burst.weight
    assert [len(part) for part in awaiting.release_all([1, 2, 4]) if isinstance(part, PublishBatch)] == [2, 1]
    awaiting.release(3)
    assert (len(awaiting), awaiting.byte_size) == (1, burst.weight)
    assert [(packet_id, size) for packet_id, size, _ in awaiting.export()] == [(5, burst.weight // 5)]
    awaiting.release(5)
    assert awaiting.byte_size == 0
