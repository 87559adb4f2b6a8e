"""Rows as Spark wants them: filtered, with its columns, in its types. What runs in the tasks."""

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from trunkline.analytics.source.options import OptionError
from trunkline.analytics.source.places import open_log
from trunkline.events.layout import LogError
from trunkline.events.schema import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from trunkline.analytics.source.planning import Range
    from trunkline.analytics.source.settings import Settings

#: Rows of batches that are put together before they go to Spark: each batch costs it something.
_TOGETHER = 8192


def arrow_schema(schema: "StructType") -> pa.Schema:
    """The Arrow schema of Spark's, which batches must have to the letter.

    Raises: OptionError, for a column that events do not have, or a type that theirs does not become.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    for field in wanted:
        if field.name not in SCHEMA.names:
            near = difflib.get_close_matches(field.name, SCHEMA.names, 1)
            raise OptionError(
                f"schema: events have no column {field.name!r}" + (f", perhaps {near[0]}?" if near else "")
            )
        own = SCHEMA.field(field.name).type
        try:
            pa.nulls(0, own).cast(field.type)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise OptionError(f"schema: column {field.name} is {own}, which does not become {field.type}") from None
    return wanted


class RowReader:
    """Reads ranges of rows. Goes to the tasks, so it opens nothing before it is asked for rows."""

    def __init__(self, settings: "Settings", schema: "StructType") -> None:
        self._settings = settings
        self._schema = arrow_schema(schema)
        self._conditions: list[pc.Expression] = []
        self._columns = set(self._schema.names)
        if settings.kinds:
            self.require("kind", _kinds(settings.kinds))
        time = pc.field("time")
        if settings.since is not None:
            self.require("time", time >= _moment(settings.since))
        if settings.until is not None:
            self.require("time", time < _moment(settings.until))

    def require(self, column: str, condition: "pc.Expression") -> None:
        """Rows for which the condition is not true are left out."""
        self._columns.add(column)
        self._conditions.append(condition)

    def read(self, part: "Range") -> Iterator[pa.RecordBatch]:
        """Raises: LogError, for rows that are damaged or lost, unless the settings say that they are skipped."""
        log = open_log(self._settings)
        names = [name for name in SCHEMA.names if name in self._columns]
        together: list[pa.RecordBatch] = []
        waiting = 0
        for first, end in part.runs:
            for batch in log.read(
                part.node,
                first,
                end,
                columns=names,
                on_corrupt=self._settings.on_corrupt,
                on_lost=self._settings.on_loss,
            ):
                for condition in self._conditions:
                    batch = batch.filter(condition)
                if batch.num_rows:
                    together.append(self._shaped(batch))
                    waiting += batch.num_rows
                if waiting >= _TOGETHER:
                    yield from _joined(together)
                    together, waiting = [], 0
        if together:
            yield from _joined(together)

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


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()


def _kinds(kinds: Sequence[str]) -> "pc.Expression":
    kind = pc.field("kind")
    condition = kind.isin([name for name in kinds if not name.endswith("*")])
    for name in kinds:
        if name.endswith("*"):
            condition = condition | pc.starts_with(kind, name.removesuffix("*"))
    return condition


def _moment(microseconds: int) -> Any:
    return pa.scalar(microseconds, SCHEMA.field("time").type)
