"""Which messages of a burst are acknowledged, and which of them may leave."""

from trunkline.client.acknowledging import MAX_RECEIVERS, OwedRun
from trunkline.mqtt.packet_types import PacketType


def test_the_front_leaves() -> None:
    run = OwedRun(PacketType.PUBACK, (5, 6, 7))
    assert run.take() == ((), False)
    assert run.acknowledge(1)
    assert not run.acknowledge(1)
    assert run.take() == ((), False)
    run.acknowledge(0)
    assert run.take() == ((5, 6), False)
    run.acknowledge(2)
    assert run.take() == ((7,), True)
    assert run.packet_id(2) == 7


def test_the_last_of_several_receivers_counts() -> None:
    run = OwedRun(PacketType.PUBREC, (1,))
    run.expect(0, 3)
    assert [run.acknowledge(0) for _ in range(4)] == [False, False, True, False]


def test_there_is_a_limit_to_receivers_that_count() -> None:
    run = OwedRun(PacketType.PUBREC, (1,))
    run.expect(0, 1000)
    assert [run.acknowledge(0) for _ in range(MAX_RECEIVERS)].index(True) == MAX_RECEIVERS - 1


def test_qos_2_is_counted_elsewhere() -> None:
    assert OwedRun(PacketType.PUBACK, (1, 2)).count == 2
    assert OwedRun(PacketType.PUBREC, (1, 2)).count == 0
