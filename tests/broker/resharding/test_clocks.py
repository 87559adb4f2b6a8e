"""The times of parts that were not made together."""

import pytest

from trunkline.broker.alive_note import ALIVE, CLOCK, NODE
from trunkline.broker.resharding.clocks import Clocks, PartClock
from trunkline.mqtt.packing import pack, unpack
from trunkline.store import WriteBatch
from trunkline.store.memory import MemoryEngine


def noted(stored: float, calendar: float, boot: str = "", boot_at: float = 0.0) -> MemoryEngine:
    engine, batch = MemoryEngine(), WriteBatch()
    batch.put(NODE, ALIVE, pack((stored, 1, calendar)))
    batch.put(NODE, CLOCK, pack((boot, boot_at, 0.0)))
    engine.commit(batch)
    return engine


@pytest.mark.parametrize(
    ("other", "clock"),
    [
        (noted(1000, 1000), PartClock(0.0, 1000)),
        (noted(1000.5, 1000), PartClock(0.0, 1000.5)),
        # made after the system's clock had been put back by 300 s
        (noted(700, 700, "boot", 300), PartClock(200.0, 900)),
        # the machine was started anew since
        (noted(700, 1000, "earlier", 1), PartClock(300.0, 1000)),
        (MemoryEngine(), PartClock(0.0, 0.0)),
    ],
    ids=["together", "nearly", "later", "another boot", "never written"],
)
def test_moments_are_moved_to_the_time_of_the_first(other: MemoryEngine, clock: PartClock) -> None:
    clocks = Clocks([noted(1000, 1000, "boot", 500), other])
    assert clocks.parts == [PartClock(0.0, 1000), clock]


def test_the_node_ran_as_long_as_any_of_its_parts() -> None:
    clocks = Clocks([noted(1000, 1010, "boot", 500), noted(1100, 1110, "boot", 500)])
    (alive, row), (clock, about) = clocks.rows(77)
    assert (alive, clock) == (ALIVE, CLOCK)
    assert unpack(row) == [1100, 77, 1110]
    assert unpack(about) == ["boot", 500, 0.0]


def test_a_first_part_that_was_never_written_has_no_time() -> None:
    clocks = Clocks([MemoryEngine(), noted(1000, 1000, "boot", 500)])
    assert unpack(clocks.rows(1)[0][1]) == [1000, 1, 1000]
