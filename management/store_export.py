"""A store as lines of JSON, and back: independent of engine and machine, for a move, a look, or a change by hand.

The first line says what it is and how many rows each space has; then comes a row a line, its key and value in base64;
the last line counts the rows, so that a file which was cut off is noticed. Of the parts of several workers one follows
another, and the first line of each says which of how many it is.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, cast

from trunkline.config.units import MAX_WORKERS
from trunkline.store import Engine, Progress, Space, WriteBatch
from trunkline.store.engine import no_progress, rows

#: Of a store that is in one part, and of one in several.
FORMAT: Final = 1
FORMAT_OF_PARTS: Final = 2
#: Bytes of keys and values that are committed at a time.
BATCH: Final = 4 << 20


class NotAnExport(Exception):
    """The lines are not what `export` wrote. The text names the line."""


def export_lines(
    engine: Engine, progress: Progress = no_progress, part: tuple[int, int] | None = None
) -> Iterator[str]:
    """`part` says which of how many it is, where there are several."""
    counts = {space.name: engine.count(space) for space in engine.spaces()}
    total, done = sum(counts.values()), 0
    if part is None:
        yield json.dumps({"trunkline_store": FORMAT, "rows": counts})
    else:
        number, parts = part
        yield json.dumps({"trunkline_store": FORMAT_OF_PARTS, "part": number, "parts": parts, "rows": counts})
    for space in engine.spaces():
        for key, value in rows(engine, space):
            yield json.dumps({"space": space.name, "key": _text(key), "value": _text(value)})
            done += 1
            progress(done, total)
    yield json.dumps({"end": done})


def import_lines(
    lines: Iterable[str], engine_for: Callable[[int, int], Engine], progress: Progress = no_progress
) -> dict[str, int]:
    """Put all rows into stores, and return how many each space has got. `engine_for` gives the store for one part of so
    many, in their order.

    Raises:
        NotAnExport: something is wrong with a line, or the last one is missing. What came before it is in the store.
        StoreError: the store does not take them.
    """
    importing, number = _Import(engine_for, progress), 0
    for number, line in enumerate(lines, 1):
        importing.take(_fields(line, number), number)
    if not importing.is_whole:
        raise NotAnExport(f"line {number}: it ends here, without the line that ends it: something is cut off")
    return importing.counts


class _Head(NamedTuple):
    part: int
    parts: int
    rows: int


class _Import:
    def __init__(self, engine_for: Callable[[int, int], Engine], progress: Progress) -> None:
        self._engine_for = engine_for
        self._progress = progress
        #: Rows by space.
        self.counts: dict[str, int] = {}
        #: Of the next part, and of all as the first one says.
        self._part = self._parts = 0
        #: Of the part whose lines come. None: its first line, or the end, is next.
        self._engine: Engine | None = None
        self._batch = WriteBatch()
        self._done = self._total = 0

    @property
    def is_whole(self) -> bool:
        return self._engine is None and 0 < self._parts == self._part

    def take(self, fields: dict[str, Any], number: int) -> None:
        """The line with this number."""
        if self._engine is None:
            self._begin(fields, number)
        elif "end" in fields:
            self._end(fields["end"], number)
            self._commit(self._engine)
            self._progress(self._total, self._total)
            self._engine = None
            self._part += 1
        else:
            space, key, value = _row(fields, number)
            self._batch.put(Space(space), key, value)
            self.counts[space] = self.counts.get(space, 0) + 1
            self._done += 1
            if self._batch.weight >= BATCH:
                self._commit(self._engine)
                self._progress(self._done, self._total)

    def _begin(self, fields: dict[str, Any], number: int) -> None:
        if self.is_whole:
            raise NotAnExport(f"line {number}: there are lines behind the end")
        head = _head(fields, number)
        if (head.part, head.parts) != (self._part, self._parts or head.parts):
            raise NotAnExport(f"line {number}: part {self._part} should begin here")
        self._parts, self._total, self._done = head.parts, head.rows, 0
        self._engine = self._engine_for(head.part, head.parts)

    def _end(self, rows: object, number: int) -> None:
        if rows != self._done:
            raise NotAnExport(f"line {number}: {rows} rows were written, and there are {self._done}")

    def _commit(self, engine: Engine) -> None:
        batch, self._batch = self._batch, WriteBatch()
        engine.commit(batch)
        engine.maintain()


def _fields(line: str, number: int) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotAnExport(f"line {number} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise NotAnExport(f"line {number} is no JSON object")
    return cast("dict[str, Any]", fields)


def _head(fields: dict[str, Any], number: int) -> _Head:
    version, counts = fields.get("trunkline_store"), fields.get("rows")
    if not isinstance(version, int) or not isinstance(counts, dict):
        raise NotAnExport(f'line {number} is not the head of an export, {{"trunkline_store": …}}')
    if version > FORMAT_OF_PARTS:
        raise NotAnExport(
            f"line {number}: it has format {version}, and this Trunkline knows formats up to {FORMAT_OF_PARTS}"
        )
    part, parts = (fields.get("part"), fields.get("parts")) if version == FORMAT_OF_PARTS else (0, 1)
    if not isinstance(part, int) or not isinstance(parts, int) or not 0 <= part < parts <= MAX_WORKERS:
        raise NotAnExport(f"line {number}: it does not say which part it is, of at most {MAX_WORKERS}")
    return _Head(part, parts, sum(cast("dict[str, int]", counts).values()))


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
