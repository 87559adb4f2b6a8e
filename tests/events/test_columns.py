from trunkline.events.columns import ARROW, Column, arrow_schema, columns, spark_schema

TABLE = columns(
    """
    time timestamp When.
    n bigint How many,
      and more.
    """
)


def test_a_table_is_read_from_its_lines() -> None:
    assert (Column("time", "timestamp", "When."), Column("n", "bigint", "How many, and more.")) == TABLE


def test_its_schemas() -> None:
    assert spark_schema(TABLE) == "`time` timestamp, `n` bigint"
    assert [(field.name, field.type) for field in arrow_schema(TABLE)] == [
        ("time", ARROW["timestamp"]),
        ("n", ARROW["bigint"]),
    ]
