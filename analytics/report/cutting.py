"""The first rows of a result, and what is counted over all of them in the same pass: what a sentence says must not be
computed from what a table has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import Row
from pyspark.sql import functions as F

from trunkline.analytics.printing import with_zone
from trunkline.analytics.report.results import Top, Who

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

#: Rows of a table in the results, of which a page shows fewer.
MAX_ROWS: Final = 200
#: Names that are known of those that a sentence counts; it has fewer, and a name may be among these several times.
_MAX_NAMES: Final = 20

Order: TypeAlias = "Sequence[Expression | str]"


def rows_of(frame: DataFrame) -> list[Row]:
    """All rows of a result that is small."""
    return list(map(_zoned, frame.collect()))


def cut(
    name: str, rows: DataFrame, order: Order, make: Callable[[Row], object] = lambda row: row, **counted: Expression
) -> dict[str, Any]:
    """The first rows by `order`, rising, which must leave no ties; and aggregates of all rows, by their names."""
    first = F.min_by(F.struct(*rows.columns), F.struct(*order), MAX_ROWS)
    found = rows.agg(F.count("*").alias("total"), first.alias("rows"), *(one.alias(n) for n, one in counted.items()))
    [row] = found.collect()
    kept = [make(_zoned(one)) for one in row["rows"] or ()]
    return {name: Top(kept, row["total"]), **{name: _named(row[name]) for name in counted}}


def who(name: str, order: Order, where: Expression | None = None) -> Expression:
    """How many different names there are among the rows for which `where` holds, and the first by `order`."""
    where = F.lit(True) if where is None else where
    first = F.min_by(name, F.when(where, F.struct(*order, name)), _MAX_NAMES)
    return F.struct(F.count_distinct(F.when(where, F.col(name))).alias("total"), first.alias("first"))


def total(name: str) -> Expression:
    return F.coalesce(F.sum(name), F.lit(0))


def falling(name: str) -> Expression:
    """Of a number: the largest comes first, and what is not known last."""
    return F.coalesce(-F.col(name), F.lit(float("inf")))


def _named(value: Any) -> Any:
    return Who(value["total"], tuple(dict.fromkeys(value["first"] or ()))) if isinstance(value, Row) else value


def _zoned(row: Row) -> Row:
    return Row(**with_zone(row.asDict()))
