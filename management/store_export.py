"""A store as lines of JSON, and back: independent of engine and machine, for a move, a look, or a change by hand.

The first line says what it is and how many rows each space has; then comes a row a line, its key and value in base64;
the last line counts the rows, so that a file which was cut off is noticed.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from trunkline.store import Engine, Progress, Space, WriteBatch
from trunkline.store.engine import no_progress, rows

FORMAT: Final = 1
#: Bytes of keys and values that are committed at a time.
BATCH: Final = 4 << 20


class NotAnExport(Exception):
    """The lines are not what `export` wrote. The text names the line."""


def export_lines(engine: Engine, progress: Progress = no_progress) -> Iterator[str]:
    counts = {space.name: engine.count(space) for space in engine.spaces()}
    total, done = sum(counts.values()), 0
    yield json.dumps({"trunkline_store": FORMAT, "rows": counts})
    for space in engine.spaces():
        for key, value in rows(engine, space):
            yield json.dumps({"space": space.name, "key": _text(key), "value": _text(value)})
            done += 1
            progress(done, total)
    yield json.dumps({"end": done})


def import_lines(lines: Iterable[str], engine: Engine, progress: Progress = no_progress) -> dict[str, int]:
    """Put all rows into a store, and return how many each space has got.

    Raises:
        NotAnExport: something is wrong with a line, or the last one is missing. What came before it is in the store.
        StoreError: the store does not take them.
    """
    total, counts = 0, dict[str, int]()
    batch, number, ended = WriteBatch(), 0, False
    for number, line in enumerate(lines, 1):
        fields = _fields(line, number)
        if number == 1:
            total = _total(fields)
        elif ended:
            raise NotAnExport(f"line {number}: there are lines behind the end")
        elif "end" in fields:
            ended = True
            if fields["end"] != sum(counts.values()):
                raise NotAnExport(f"line {number}: {fields['end']} rows were written, and there are {number - 2}")
        else:
            space, key, value = _row(fields, number)
            batch.put(Space(space), key, value)
            counts[space] = counts.get(space, 0) + 1
            if batch.weight >= BATCH:
                engine.commit(batch)
                engine.maintain()
                batch = WriteBatch()
                progress(number - 1, total)
    if not ended:
        raise NotAnExport(f"line {number}: it ends here, without the line that ends it: something is cut off")
    engine.commit(batch)
    progress(total, total)
    return counts


def _fields(line: str, number: int) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotAnExport(f"line {number} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise NotAnExport(f"line {number} is no JSON object")
    return cast("dict[str, Any]", fields)


def _total(head: dict[str, Any]) -> int:
    version, counts = head.get("trunkline_store"), head.get("rows")
    if not isinstance(version, int) or not isinstance(counts, dict):
        raise NotAnExport('line 1 is not the head of an export, {"trunkline_store": …}')
    if version > FORMAT:
        raise NotAnExport(f"line 1: it has format {version}, and this Trunkline knows formats up to {FORMAT}")
    return sum(cast("dict[str, int]", counts).values())


def _row(fields: dict[str, Any], number: int) -> tuple[str, bytes, bytes]:
    try:
        space, key, value = fields["space"], fields["key"], fields["value"]
        if not isinstance(space, str):
            raise TypeError("space is no text")
        return space, b64decode(key, validate=True), b64decode(value, validate=True)
    except KeyError as error:
        raise NotAnExport(f"line {number} has no {error}") from None
    except (TypeError, ValueError) as error:
        raise NotAnExport(f"line {number}: {error}") from None


def _text(data: bytes) -> str:
    return b64encode(data).decode()
