from hypothesis import given
from hypothesis import strategies as st

from trunkline.broker.backlogs.merge import BACKLOGS_AT_ONCE, MAX_BUFFERED, Merge
from trunkline.broker.backlogs.rows import ENTRIES, Entry, entry_key, entry_to_row
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.mqtt.packing import pack
from trunkline.store import WriteBatch
from trunkline.store.engine import key_of
from trunkline.store.memory import MemoryEngine

#: Which backlogs have each entry, by its sequence.
layouts = st.dictionaries(st.integers(1, 400), st.sets(st.integers(1, 4), min_size=1), max_size=250)


def engine_with(layout: dict[int, set[int]]) -> MemoryEngine:
    engine, batch = MemoryEngine(), WriteBatch()
    for sequence, backlogs in layout.items():
        batch.put(MESSAGES, key_of(sequence), b"%d" % sequence)
        for backlog in backlogs:
            batch.put(ENTRIES, entry_key(backlog, sequence), entry_to_row(Entry(sequence, sequence, 0, 1, 10, 0, 0)))
    engine.commit(batch)
    return engine


@given(layouts, st.sets(st.integers(1, 4)), st.integers(0, 400), st.integers(1, 80))
def test_each_entry_comes_once_and_in_order(layout: dict[int, set[int]], mine: set[int], after: int, rows: int) -> None:
    merge, engine = Merge(), engine_with(layout)
    woken = [(backlog, after) for backlog in mine]
    found: list[int] = []
    while reads := merge.page(engine, woken, rows, 1 << 20):
        woken = []
        assert len(reads) <= rows
        for read in reads:
            assert {backlog for backlog, _ in read.totals} == layout[read.entry.sequence] & mine
            assert read.data == b"%d" % read.entry.sequence
        found += [read.entry.sequence for read in reads]
    assert merge.drained
    assert found == sorted(sequence for sequence in layout if sequence > after and layout[sequence] & mine)


def test_what_comes_later_is_found_when_its_backlog_is_named() -> None:
    merge, engine = Merge(), engine_with({1: {1}, 2: {2}})
    assert [read.entry.sequence for read in merge.page(engine, [(1, 0), (2, 0)], 10, 1 << 20)] == [1, 2]
    batch = WriteBatch()
    for sequence in (3, 4):
        batch.put(ENTRIES, entry_key(1, sequence), entry_to_row(Entry(sequence, 1, 0, 1, 10, 0, 0)))
    engine.commit(batch)
    assert not merge.page(engine, [], 10, 1 << 20)
    assert [read.entry.sequence for read in merge.page(engine, [(1, 1)], 10, 1 << 20)] == [3, 4]


def test_a_page_is_bounded_in_bytes() -> None:
    merge, engine = Merge(), engine_with({sequence: {1} for sequence in range(1, 50)})
    assert len(merge.page(engine, [(1, 0)], 100, 35)) == 4


def test_each_entry_says_how_many_rows_of_queues_have_its_publication() -> None:
    merge, engine = Merge(), engine_with({sequence: {1} for sequence in range(1, 5)})
    batch = WriteBatch()
    batch.put(REFERENCES, key_of(2), pack(4))
    batch.put(REFERENCES, key_of(3), pack(1))
    engine.commit(batch)
    assert [read.queued for read in merge.page(engine, [(1, 0)], 10, 1 << 20)] == [0, 4, 1, 0]


def test_many_backlogs_are_looked_into_in_steps_and_few_entries_of_each() -> None:
    merge, engine = Merge(), engine_with({sequence: {sequence % 1000} for sequence in range(1, 5001)})
    woken = [(backlog, 0) for backlog in range(1000)]
    found: list[int] = []
    empty = 0
    while not (found and merge.drained):
        reads = merge.page(engine, woken, 64, 1 << 20)
        woken = []
        empty += not reads
        found += [read.entry.sequence for read in reads]
        assert sum(map(len, merge._buffers.values())) <= MAX_BUFFERED + 64  # pyright: ignore[reportPrivateUsage]
    assert found == list(range(1, 5001))
    assert empty == 1000 // BACKLOGS_AT_ONCE
