"""Conditions of a query that the reader checks in place of Spark: those on nodes and times spare it whole files."""

import datetime
from collections.abc import Callable
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

from trunkline.analytics.source.planning import Window
from trunkline.events.layout import NodeKey
from trunkline.events.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_TYPES: Final = {column.name: column.type for column in COLUMNS}
_SPARK_TYPES: Final = {column.name: column.spark for column in COLUMNS}
#: Columns whose values compare in Arrow as they do in Spark.
_COMPARABLE: Final = frozenset({"string", "int", "bigint", "timestamp"})
_COMPARISONS: Final[dict[type[Filter], Callable[[Any, Any], Any]]] = {
    EqualTo: lambda column, value: column == value,
    GreaterThan: lambda column, value: column > value,
    GreaterThanOrEqual: lambda column, value: column >= value,
    LessThan: lambda column, value: column < value,
    LessThanOrEqual: lambda column, value: column <= value,
    In: lambda column, values: column.isin(values),
    StringStartsWith: pc.starts_with,
}


class Pushed:
    """The conditions that were taken over. All of them must hold."""

    def __init__(self) -> None:
        self.conditions: list[tuple[str, pc.Expression]] = []
        self._names: set[str] | None = None
        self._window = Window()

    def take(self, condition: Filter, schema: "StructType") -> bool:
        """Whether the condition is checked from now on; if not, it stays with Spark."""
        path: tuple[str, ...] = getattr(condition, "attribute", ())
        column = path[0] if len(path) == 1 else ""
        # a column that the user asked for in another type is compared by Spark, after the conversion
        if column not in schema.names or schema[column].dataType.simpleString() != _SPARK_TYPES.get(column):
            return False
        field: Any = pc.field(column)
        if isinstance(condition, IsNotNull):
            self.conditions.append((column, field.is_valid()))
            return True
        compare = _COMPARISONS.get(type(condition))
        if compare is None or _SPARK_TYPES[column] not in _COMPARABLE:
            return False
        value: Any = vars(condition)["value"]
        several = isinstance(condition, In)
        try:
            values = pa.array(list(value) if several else [value], _TYPES[column])
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError):
            return False
        if values.null_count or (isinstance(condition, StringStartsWith) and _TYPES[column] != pa.string()):
            return False
        if isinstance(condition, StringStartsWith):
            self.conditions.append((column, compare(field, value)))
        else:
            self.conditions.append((column, compare(field, values if several else values[0])))
        self._remember(condition, column, list(value) if several else [value])
        return True

    def _remember(self, condition: Filter, column: str, values: list[Any]) -> None:
        kind = type(condition)
        if column == "node" and kind in (EqualTo, In):
            names = {str(value) for value in values}
            self._names = names if self._names is None else self._names & names
        elif column == "time":
            moments = [_microseconds(value) for value in values]
            since = min(moments) if kind in (EqualTo, In, GreaterThan, GreaterThanOrEqual) else None
            until = max(moments) + 1 if kind in (EqualTo, In, LessThan, LessThanOrEqual) else None
            self._window = _both(self._window, Window(since, until))

    def may_be_of(self, node: str) -> bool:
        """Whether rows of this node key can be wanted."""
        return self._names is None or NodeKey.parse(node).name in self._names

    def narrowed(self, window: Window) -> Window:
        return _both(window, self._window)


def _both(one: Window, other: Window) -> Window:
    since = [value for value in (one.since, other.since) if value is not None]
    until = [value for value in (one.until, other.until) if value is not None]
    return Window(max(since) if since else None, min(until) if until else None)


def _microseconds(moment: datetime.datetime) -> int:
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)
