import pyarrow as pa
import pytest

from trunkline.events.gathering import together


def batches(*lengths: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"n": pa.array(range(length), pa.int64())}) for length in lengths]


@pytest.mark.parametrize(
    ("lengths", "rows", "size", "expected"),
    [
        ((3, 3, 3, 1), 5, 10**6, [6, 4]),
        ((3, 3, 3, 1), 10**6, 40, [6, 4]),
        ((9,), 5, 10**6, [9]),
        ((2, 3), 5, 10**6, [5]),
        ((0, 0), 5, 10**6, []),
        ((), 5, 10**6, []),
    ],
)
def test_what_comes_together(lengths: tuple[int, ...], rows: int, size: int, expected: list[int]) -> None:
    assert [table.num_rows for table in together(batches(*lengths), rows, size)] == expected
