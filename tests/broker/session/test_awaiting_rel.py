from trunkline.broker.session.awaiting_rel import AwaitingRel, Received
from trunkline.broker.session.inflight import Miss


def received(maximum: int, *at: float) -> AwaitingRel[str]:
    awaiting = AwaitingRel[str](maximum)
    for packet_id, now in enumerate(at, 1):
        assert awaiting.receive(packet_id, f"message {packet_id}", now) is Received.NEW
    return awaiting


def test_a_packet_id_is_new_once_until_it_is_released() -> None:
    awaiting = received(10, 0.0)
    assert awaiting.receive(1, "again", 1.0) is Received.DUPLICATE
    assert 1 in awaiting
    assert awaiting.release(1) == "message 1"
    assert 1 not in awaiting
    assert awaiting.receive(1, "next", 1.0) is Received.NEW


def test_an_unknown_packet_id_is_told() -> None:
    awaiting = received(10, 0.0)
    assert awaiting.release(2) is Miss.NOT_FOUND
    assert len(awaiting) == 1


def test_no_more_than_the_maximum_may_be_open() -> None:
    awaiting = received(2, 0.0, 0.0)
    assert awaiting.receive(3, "", 0.0) is Received.FULL
    assert awaiting.receive(2, "", 0.0) is Received.DUPLICATE
    assert len(awaiting) == 2
    awaiting.release(1)
    assert awaiting.receive(3, "", 0.0) is Received.NEW


def test_zero_is_no_maximum() -> None:
    assert len(received(0, *[0.0] * 500)) == 500


def test_ids_are_forgotten_after_the_timeout() -> None:
    awaiting = received(10, 0.0, 5.0, 10.0)
    assert awaiting.expire(299.9, 300.0, 10) == []
    assert awaiting.expire(305.0, 300.0, 10) == [(1, "message 1"), (2, "message 2")]
    assert awaiting.expire(305.0, 300.0, 10) == []
    assert awaiting.expire(1000.0, 300.0, 10) == [(3, "message 3")]
    assert len(awaiting) == 0


def test_expiry_is_bounded_and_begins_with_the_oldest() -> None:
    awaiting = received(10, 0.0, 1.0, 2.0)
    assert [packet_id for packet_id, _ in awaiting.expire(900.0, 300.0, 2)] == [1, 2]
    assert [packet_id for packet_id, _ in awaiting.expire(900.0, 300.0, 2)] == [3]


def test_an_export_restores_with_a_fresh_timeout() -> None:
    copy = AwaitingRel[str](10)
    copy.restore(received(10, 0.0, 1.0).export(), 1000.0)
    assert copy.export() == [(1, "message 1"), (2, "message 2")]
    assert copy.expire(1299.0, 300.0, 10) == []
    assert len(copy.expire(1300.0, 300.0, 10)) == 2
