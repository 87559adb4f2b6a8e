from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from tests.analytics.events_made import INCARNATION, at, made
from tests.analytics.source.logs import by_number, read, schema_of, settings, write
from tests.analytics.source.versions import needs
from trunkline.analytics.source.planning import Window

with needs("4.1", "pushFilters"):
    from pyspark.sql.datasource import (
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        IsNotNull,
        LessThan,
        LessThanOrEqual,
        Not,
        StringContains,
        StringStartsWith,
    )

    from trunkline.analytics.source.pushdown import Pushed, PushingEventReader

WANTED = StructType(
    [
        StructField("node", StringType()),
        StructField("time", TimestampType()),
        StructField("kind", StringType()),
        StructField("qos", IntegerType()),
        # the table has an int
        StructField("receivers", LongType()),
    ]
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MICROSECONDS = 1_772_366_400_000_000
ROWS = pa.table(
    {
        "kind": ["client.connected", "client.disconnected", "message.publish", None],
        "qos": pa.array([None, 0, 1, 2], pa.int32()),
        "time": pa.array([MICROSECONDS + n for n in range(4)], pa.timestamp("us", tz="UTC")),
    }
)


def left_by(*filters: Filter) -> list[int]:
    """Which rows all the conditions let through."""
    pushed = Pushed()
    assert all(pushed.take(one, WANTED) for one in filters)
    table = ROWS.append_column("row", [list(range(4))])
    for column, holds in pushed.conditions:
        table = table.filter(holds(table.column(column)))
    return table.column("row").to_pylist()


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (EqualTo(("kind",), "message.publish"), [2]),
        (In(("kind",), ("message.publish", "client.connected")), [0, 2]),
        (StringStartsWith(("kind",), "client."), [0, 1]),
        (IsNotNull(("kind",)), [0, 1, 2]),
        (GreaterThan(("qos",), 0), [2, 3]),
        (GreaterThanOrEqual(("qos",), 0), [1, 2, 3]),
        (LessThan(("qos",), 1), [1]),
        (LessThanOrEqual(("time",), NOON), [0]),
    ],
)
def test_conditions_hold_as_in_spark(condition: Filter, rows: list[int]) -> None:
    assert left_by(condition) == rows


def test_several_conditions_must_all_hold() -> None:
    assert left_by(StringStartsWith(("kind",), "client."), EqualTo(("qos",), 0)) == [1]


@pytest.mark.parametrize(
    "condition",
    [
        StringContains(("kind",), "client"),
        Not(EqualTo(("kind",), "client.connected")),
        EqualTo(("receivers",), 5),
        EqualTo(("kind", "deeper"), "x"),
        EqualTo(("kind",), None),
        EqualTo(("qos",), 2**40),
        EqualTo(("qos",), "one"),
        In(("kind",), ("a", None)),
        In(("kind",), ()),
        EqualTo(("time",), NOON.replace(tzinfo=None)),
        StringStartsWith(("qos",), "1"),
    ],
)
def test_what_would_not_be_exact_stays_with_spark(condition: Filter) -> None:
    pushed = Pushed()
    assert not pushed.take(condition, WANTED)
    assert pushed.conditions == []


def test_times_narrow_the_window() -> None:
    pushed = Pushed()
    for condition in (GreaterThan(("time",), NOON), LessThanOrEqual(("time",), NOON.replace(hour=13))):
        assert pushed.take(condition, WANTED)
    hour = 3_600_000_000
    assert pushed.narrowed(Window()) == Window(MICROSECONDS, MICROSECONDS + hour + 1)
    assert pushed.narrowed(Window(MICROSECONDS + 5, None)) == Window(MICROSECONDS + 5, MICROSECONDS + hour + 1)


def test_names_of_nodes_leave_the_others_out() -> None:
    pushed = Pushed()
    assert pushed.may_be_of("n1@5")
    assert pushed.take(In(("node",), ("n1", "n2")), WANTED)
    assert pushed.take(EqualTo(("node",), "n2"), WANTED)
    assert not pushed.may_be_of("n1@5")
    assert pushed.may_be_of("n2@5")


def test_pushed_conditions_spare_the_other_node_and_times(tmp_path: Path) -> None:
    events = made(3_000)
    write(tmp_path, events, roll_bytes=100_000)
    reader = PushingEventReader(settings(tmp_path, pushFilters="true"), schema_of("seq", "node", "kind", "time"))
    conditions = [
        EqualTo(("node",), "n1"),
        In(("kind",), ("node.tick", "node.stats")),
        GreaterThanOrEqual(("time",), at(240)),
        StringContains(("kind",), "tick"),
    ]
    assert reader.pushFilters(conditions) == conditions[3:]
    parts = reader.partitions()
    assert {part.value.node for part in parts} == {f"n1@{INCARNATION}"}
    expected = [
        one["seq"]
        for one in by_number(events)
        if one["node"] == "n1" and one["kind"] in ("node.tick", "node.stats") and one["time"] >= at(240)
    ]
    assert read(reader, parts).column("seq").to_pylist() == expected
