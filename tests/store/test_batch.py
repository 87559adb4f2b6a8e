from hypothesis import given
from hypothesis import strategies as st

from tests.store.puts import COLOURS
from trunkline.store import WriteBatch
from trunkline.store.batch import LARGE, ROW_OVERHEAD, SCANNED
from trunkline.store.memory import MemoryEngine


def test_a_batch_with_nothing_to_write_is_empty() -> None:
    batch = WriteBatch()
    assert not batch
    batch.put(COLOURS, b"a", b"1")
    assert batch
    batch.delete(COLOURS, b"a", put_once=True)
    assert not batch
    batch.delete_range(COLOURS, b"a", b"b")
    assert batch


def test_a_batch_that_comes_again_weighs_what_is_left_in_it() -> None:
    batch = WriteBatch()
    for value in (b"x" * 100, b"y"):
        batch.put(COLOURS, b"a", value)
    batch.put_packed(COLOURS, b"b", LARGE, lambda: b"z" * 10)
    batch.delete(COLOURS, b"c")
    batch.delete_range(COLOURS, b"d", b"e")
    batch.weigh()
    assert batch.weight == len(b"ayb" + b"z" * 10 + b"cde")
    assert batch.memory == batch.weight + 4 * ROW_OVERHEAD


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "delete", "once", "range"]), st.integers(0, 30), st.integers(0, 30)),
        max_size=60,
    )
)
def test_ranges_of_a_batch_with_many_values_delete_what_those_of_one_with_few_do(
    steps: list[tuple[str, int, int]],
) -> None:
    few, many = WriteBatch(), WriteBatch()
    for number in range(SCANNED + 1):
        many.put(COLOURS, b"z%d" % number, b"")
    many.delete_range(COLOURS, b"y", b"zz")
    many.ranges.clear()
    for batch in (few, many):
        for what, key, other in steps:
            if what == "put":
                batch.put(COLOURS, b"%02d" % key, b"%d" % other)
            elif what == "range":
                batch.delete_range(COLOURS, b"%02d" % key, b"%02d" % other)
            else:
                batch.delete(COLOURS, b"%02d" % key, put_once=what == "once")
    assert many.values.get(COLOURS, {}) == few.values.get(COLOURS, {})
    assert many.ranges == few.ranges


class CountedKey(bytes):
    compared = 0

    def __lt__(self, other: bytes) -> bool:
        CountedKey.compared += 1
        return bytes.__lt__(self, other)

    def __le__(self, other: bytes) -> bool:
        CountedKey.compared += 1
        return bytes.__le__(self, other)

    def __gt__(self, other: bytes) -> bool:
        CountedKey.compared += 1
        return bytes.__gt__(self, other)


def test_many_ranges_do_not_look_at_all_values_each() -> None:
    batch, count = WriteBatch(), 3000
    CountedKey.compared = 0
    for number in range(count):
        batch.put(COLOURS, CountedKey(b"%06d" % number), b"")
        batch.delete_range(COLOURS, CountedKey(b"%06d" % (number // 2)), CountedKey(b"%06d" % (number // 2 + 1)))
    assert len(batch.values[COLOURS]) == count // 2
    assert CountedKey.compared < 200 * count


CHANGE = st.tuples(st.sampled_from(["put", "late", "delete", "once", "range"]), st.integers(0, 9), st.integers(0, 9))


@given(st.lists(st.lists(CHANGE, max_size=12), min_size=2, max_size=4))
def test_batches_that_are_put_together_do_what_they_do_one_after_another(
    found: list[list[tuple[str, int, int]]],
) -> None:
    one_by_one, together = MemoryEngine(), MemoryEngine()
    whole = WriteBatch()
    for commit, changes in enumerate(found):
        batch = WriteBatch()
        for what, number, other in changes:
            key = b"%d" % number
            if what == "put":
                batch.put(COLOURS, key, b"%d in %d" % (other, commit))
            elif what == "late":
                batch.put_packed(COLOURS, key, LARGE, bytes, b"%d late in %d" % (other, commit))
            elif what == "range":
                batch.delete_range(COLOURS, key, b"%d" % other)
            else:
                batch.delete(COLOURS, key, put_once=what == "once" and key not in one_by_one_keys(one_by_one))
        whole.add(batch)
        one_by_one.commit(batch)
    together.commit(whole)
    assert together.scan(COLOURS) == one_by_one.scan(COLOURS)


def test_a_batch_weighs_what_its_parts_do() -> None:
    parts = [WriteBatch(), WriteBatch()]
    for part in parts:
        part.put(COLOURS, b"key", b"value")
        part.delete_range(COLOURS, b"low", b"lower")
    weight = sum(part.weight for part in parts)
    first, second = parts
    first.add(second)
    assert first.weight == weight


def test_a_range_deletes_of_a_batch_with_many_values_what_another_has_added() -> None:
    many, more = WriteBatch(), WriteBatch()
    for number in range(SCANNED + 1):
        many.put(COLOURS, b"%d" % number, b"")
    many.delete_range(COLOURS, b"0", b"1")
    more.put(COLOURS, b"new", b"")
    many.add(more)
    many.delete_range(COLOURS, b"n", b"o")
    assert b"new" not in many.values[COLOURS]


def one_by_one_keys(engine: MemoryEngine) -> set[bytes]:
    return {key for key, _ in engine.scan(COLOURS)}
