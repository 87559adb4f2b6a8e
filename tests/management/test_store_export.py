import json

import pytest

from tests.store.puts import COLOURS, OTHERS, put
from trunkline.management.store_export import BATCH, NotAnExport, export_lines, import_lines
from trunkline.store import Space, WriteBatch
from trunkline.store.memory import MemoryEngine


@pytest.fixture
def engine() -> MemoryEngine:
    engine = MemoryEngine()
    put(engine, COLOURS, red=b"\x00\xff", blue=b"")
    put(engine, OTHERS, red=b"x" * 100_000)
    return engine


def everything(engine: MemoryEngine) -> dict[Space, list[tuple[bytes, bytes]]]:
    return {space: engine.scan(space) for space in engine.spaces()}


def test_all_rows_are_there_again(engine: MemoryEngine) -> None:
    copy = MemoryEngine()
    assert import_lines(export_lines(engine), lambda *_: copy) == {"colours": 2, "others": 1}
    assert everything(copy) == everything(engine)


def test_the_form_is_kept_for_ever(engine: MemoryEngine) -> None:
    first, second, third, *_, last = export_lines(engine)
    assert json.loads(first) == {"trunkline_store": 1, "rows": {"colours": 2, "others": 1}}
    assert json.loads(second) == {"space": "colours", "key": "Ymx1ZQ==", "value": ""}
    assert json.loads(third) == {"space": "colours", "key": "cmVk", "value": "AP8="}
    assert json.loads(last) == {"end": 3}


def test_many_rows_are_committed_in_parts() -> None:
    engine, copy, batch = MemoryEngine(), MemoryEngine(), WriteBatch()
    for number in range(5):
        batch.put(COLOURS, b"%d" % number, bytes(BATCH // 2))
    engine.commit(batch)
    steps: list[tuple[int, int]] = []
    import_lines(export_lines(engine), lambda *_: copy, lambda done, total: steps.append((done, total)))
    assert steps == [(2, 5), (4, 5), (5, 5)]
    assert copy.count(COLOURS) == 5


def test_progress_of_an_export(engine: MemoryEngine) -> None:
    steps: list[tuple[int, int]] = []
    list(export_lines(engine, lambda done, total: steps.append((done, total))))
    assert steps == [(1, 3), (2, 3), (3, 3)]


FIRST, SECOND = (f'{{"trunkline_store": 2, "part": {part}, "parts": 2, "rows": {{}}}}' for part in range(2))
HEAD, END = '{"trunkline_store": 1, "rows": {}}', '{"end": 0}'


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([], "line 0: it ends here"),
        (["x"], "line 1 is not JSON"),
        (["[]"], "line 1 is no JSON object"),
        (['{"a": 1}'], "line 1 is not the head of an export"),
        (['{"trunkline_store": 3, "rows": {}}', END], "format 3, and this Trunkline knows formats up to 2"),
        (['{"trunkline_store": 2, "rows": {}}', END], "line 1: it does not say which part it is"),
        ([SECOND, END], "line 1: part 0 should begin here"),
        ([FIRST, END], "line 2: it ends here"),
        ([FIRST, END, FIRST, END], "line 3: part 1 should begin here"),
        ([FIRST, END, HEAD, END], "line 3: part 1 should begin here"),
        ([FIRST, END, SECOND, END, END], "line 5: there are lines behind the end"),
        ([HEAD], "line 1: it ends here"),
        ([HEAD, '{"end": 1}'], "line 2: 1 rows were written, and there are 0"),
        ([HEAD, END, END], "line 3: there are lines behind the end"),
        ([HEAD, '{"space": "a", "key": ""}', END], "line 2 has no 'value'"),
        ([HEAD, '{"space": 1, "key": "", "value": ""}', END], "line 2: space is no text"),
        ([HEAD, '{"space": "a", "key": "", "value": "!"}', END], "line 2: "),
        ([HEAD, '{"space": "a", "key": "", "value": 1}', END], "line 2: "),
    ],
)
def test_what_is_no_export_is_refused_with_its_line(lines: list[str], error: str) -> None:
    with pytest.raises(NotAnExport, match=error):
        import_lines(lines, lambda *_: MemoryEngine())


def test_parts_follow_each_other(engine: MemoryEngine) -> None:
    other, copies = MemoryEngine(), [MemoryEngine(), MemoryEngine()]
    put(other, COLOURS, green=b"1")
    lines = [*export_lines(engine, part=(0, 2)), *export_lines(other, part=(1, 2))]
    asked = list[tuple[int, int]]()

    def engine_for(part: int, parts: int) -> MemoryEngine:
        asked.append((part, parts))
        return copies[part]

    assert import_lines(lines, engine_for) == {"colours": 3, "others": 1}
    assert asked == [(0, 2), (1, 2)]
    assert [everything(copy) for copy in copies] == [everything(engine), everything(other)]
