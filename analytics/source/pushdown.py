"""Conditions of a query that the reader checks in place of Spark: those on nodes and times spare it whole files."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from trunkline.analytics.source.batch import EventReader
from trunkline.analytics.source.planning import Window
from trunkline.events.layout import NodeKey
from trunkline.events.schema import COLUMNS, SCHEMA
from trunkline.events.times import to_microseconds

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from trunkline.analytics.source.options import SourceSettings

_SPARK_TYPES: Final = {column.name: column.type for column in COLUMNS}
#: Columns whose values compare in Arrow as they do in Spark.
_COMPARABLE: Final = frozenset({"string", "int", "bigint", "timestamp"})
#: From a column and what it is compared with to which rows are wanted.
_COMPARISONS: Final[dict[type[Filter], Callable[[Any, Any], Any]]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
    In: pc.is_in,
    StringStartsWith: lambda column, start: pc.starts_with(column, start.as_py()),
}


def _holds(kind: type[Filter], values: list[Any], column: Any) -> Any:
    compared = pa.array(values, column.type)
    return _COMPARISONS[kind](column, compared if kind is In else compared[0])


class Pushed:
    """The conditions that were taken over. All of them must hold."""

    def __init__(self) -> None:
        #: A column, and from its values to which of them are wanted.
        self.conditions: list[tuple[str, Callable[[Any], Any]]] = []
        self._names: set[str] | None = None
        self._window = Window()

    def take(self, condition: Filter, schema: "StructType") -> bool:
        """Whether the condition is checked from now on; if not, it stays with Spark."""
        path: tuple[str, ...] = getattr(condition, "attribute", ())
        column = path[0] if len(path) == 1 else ""
        # a column that the user asked for in another type is compared by Spark, after the conversion
        if column not in schema.names or schema[column].dataType.simpleString() != _SPARK_TYPES.get(column):
            return False
        kind = type(condition)
        if kind is IsNotNull:
            self.conditions.append((column, pc.is_valid))
            return True
        if kind not in _COMPARISONS or _SPARK_TYPES[column] not in _COMPARABLE:
            return False
        value: Any = vars(condition)["value"]
        values = list(value) if kind is In else [value]
        if not _comparable(values, column) or (kind is StringStartsWith and _SPARK_TYPES[column] != "string"):
            return False
        self.conditions.append((column, partial(_holds, kind, values)))
        self._remember(kind, column, values)
        return True

    def _remember(self, kind: type[Filter], column: str, values: list[Any]) -> None:
        if column == "node" and kind in (EqualTo, In):
            names = {str(value) for value in values}
            self._names = names if self._names is None else self._names & names
        elif column == "time":
            moments = [to_microseconds(value) for value in values]
            since = min(moments) if kind in (EqualTo, In, GreaterThan, GreaterThanOrEqual) else None
            until = max(moments) + 1 if kind in (EqualTo, In, LessThan, LessThanOrEqual) else None
            self._window = _both(self._window, Window(since, until))

    def may_be_of(self, node: str) -> bool:
        """Whether rows of this node key can be wanted."""
        return self._names is None or NodeKey.parse(node).name in self._names

    def narrowed(self, window: Window) -> Window:
        return _both(window, self._window)


def _comparable(values: list[Any], column: str) -> bool:
    """Whether there are values at all, none of them null, and the column could have them."""
    if any(isinstance(value, datetime) and value.tzinfo is None for value in values):
        return False
    try:
        return bool(values) and pa.array(values, SCHEMA.field(column).type).null_count == 0
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError):
        return False


def _both(one: Window, other: Window) -> Window:
    since = [value for value in (one.since, other.since) if value is not None]
    until = [value for value in (one.until, other.until) if value is not None]
    return Window(max(since) if since else None, min(until) if until else None)


class PushingEventReader(EventReader):
    """One that gets the query's conditions. A class of its own, because Spark refuses such readers unless
    `spark.sql.python.filterPushdown.enabled` is set."""

    def __init__(self, settings: "SourceSettings", schema: "StructType") -> None:
        super().__init__(settings, schema)
        self._schema = schema
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        self._pushed = Pushed()
        left = [one for one in filters if not self._pushed.take(one, self._schema)]
        for column, condition in self._pushed.conditions:
            self._rows.require(column, condition)
        self._window = self._pushed.narrowed(self._window)
        return left

    def _wanted(self, node: str) -> bool:
        return self._pushed.may_be_of(node)
