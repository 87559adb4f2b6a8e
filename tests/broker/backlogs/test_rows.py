from trunkline.broker.backlogs.rows import (
    Entry,
    StoredBacklog,
    entry_from_row,
    entry_key,
    entry_to_row,
    filter_from_row,
    filter_to_row,
)
from trunkline.store.engine import key_of


def test_what_is_written_is_read() -> None:
    entry = Entry(7, 5, 1, 20, 2_000, 120, 12_000, ((3, 7), (4, 6)))
    assert entry_from_row(entry_key(2, 7), entry_to_row(entry)) == entry
    backlog = StoredBacklog(2, "a/+/#", 120, 12_000, 7)
    assert filter_from_row(key_of(2), filter_to_row(backlog)) == backlog


def test_rows_stand_in_the_order_of_their_sequence() -> None:
    keys = [entry_key(backlog, sequence) for backlog in (1, 2, 300) for sequence in (0, 1, 255, 256, 70_000)]
    assert keys == sorted(keys)
