"""Rows as Spark wants them: filtered, with its columns, in its types. What runs in the tasks."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from inspect import signature
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from trunkline.analytics.options import OptionError
from trunkline.analytics.source.options import SourceSettings
from trunkline.analytics.source.places import open_log
from trunkline.events.gathering import together
from trunkline.events.layout import LogError
from trunkline.events.schema import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from trunkline.analytics.source.planning import Range
    from trunkline.events.reader import EventLog

#: Rows of batches that are put together before they go to Spark, as each batch costs it something; or bytes of them in
#: memory, for payloads may be long.
_TOGETHER: Final = 8192
_TOGETHER_BYTES: Final = 32 << 20


def arrow_schema(schema: "StructType") -> pa.Schema:
    """The Arrow schema of Spark's, which batches must have to the letter.

    Raises: OptionError, for a column that events do not have, or a type that theirs does not become.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    # before 4.2 it knows no other time zone
    takes_zone = "timezone" in signature(to_arrow_schema).parameters
    wanted = to_arrow_schema(schema, timezone="UTC") if takes_zone else to_arrow_schema(schema)
    for field in wanted:
        if field.name not in SCHEMA.names:
            near = difflib.get_close_matches(field.name, SCHEMA.names, 1)
            raise OptionError(
                f"schema: events have no column {field.name!r}" + (f", perhaps {near[0]}?" if near else "")
            )
        own = SCHEMA.field(field.name).type
        try:
            if pa.types.is_string(own) and not pa.types.is_string(field.type) and not pa.types.is_binary(field.type):
                raise pa.ArrowInvalid  # Arrow would try it with each text
            pa.nulls(0, own).cast(field.type)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise OptionError(f"schema: column {field.name} is {own}, which does not become {field.type}") from None
    return wanted


#: From a column to which of its rows are wanted. Functions, for Arrow's expressions cost a small batch far more.
Condition = Callable[[Any], Any]


@lru_cache(maxsize=4)
def _opened(roots: tuple[str, ...], storage: tuple[tuple[str, str], ...]) -> "EventLog":
    """The log stays open: a process does one task after another, and finds out by itself when files have changed."""
    return open_log(SourceSettings(paths=roots, storage=dict(storage)))


class RowReader:
    """Reads ranges of rows. Goes to the tasks, so it opens nothing before it is asked for rows."""

    def __init__(self, settings: SourceSettings, schema: "StructType") -> None:
        self._settings = settings
        self._schema = arrow_schema(schema)
        self._conditions: list[tuple[str, Condition]] = []
        self._columns = set(self._schema.names)
        if settings.kinds:
            self.require("kind", partial(_is_one_of, settings.kinds))
        if settings.starting_timestamp is not None:
            self.require("time", partial(_is_from, settings.starting_timestamp))
        if settings.ending_timestamp is not None:
            self.require("time", partial(_is_before, settings.ending_timestamp))

    def require(self, column: str, condition: Condition) -> None:
        """Rows for which the condition of the column's values is not true are left out."""
        self._columns.add(column)
        self._conditions.append((column, condition))

    def read(self, part: "Range") -> Iterator[pa.RecordBatch]:
        """Raises: LogError, for rows that are damaged or lost, unless the settings say that they are skipped."""
        log = _opened(self._settings.roots, tuple(sorted(self._settings.storage.items())))
        wanted = self._schema.names
        names = [*wanted, *sorted(self._columns.difference(wanted))]
        batches = chain.from_iterable(
            log.read(
                part.node,
                first,
                end,
                columns=names,
                on_corrupt=self._settings.on_corrupt,
                on_lost="fail" if self._settings.fail_on_data_loss else "skip",
                verify=self._settings.verify,
            )
            for first, end in part.runs
        )
        for table in together(batches, _TOGETHER, _TOGETHER_BYTES):
            for batch in table.combine_chunks().to_batches():
                for column, condition in self._conditions:
                    batch = batch.filter(condition(batch.column(column)))
                if batch.num_rows:
                    yield batch if batch.schema == self._schema else self._shaped(batch)

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns: list[pa.Array[Any]] = []
        for field in self._schema:
            column = batch.column(field.name)
            if column.type != field.type:
                try:
                    column = column.cast(field.type)
                except pa.ArrowInvalid as error:
                    raise LogError(f"column {field.name}: does not become {field.type}: {error}") from None
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _is_one_of(kinds: Sequence[str], column: Any) -> Any:
    mask = pc.is_in(column, pa.array([name for name in kinds if not name.endswith("*")], pa.string()))
    for name in kinds:
        if name.endswith("*"):
            mask = pc.or_(mask, pc.starts_with(column, name.removesuffix("*")))
    return mask


def _is_from(microseconds: int, column: Any) -> Any:
    return pc.greater_equal(column, pa.scalar(microseconds, column.type))


def _is_before(microseconds: int, column: Any) -> Any:
    return pc.less(column, pa.scalar(microseconds, column.type))
