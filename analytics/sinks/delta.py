"""Results into a Delta table, each batch once: `df.writeStream.foreachBatch(delta_sink(path))`.

Tasks write Parquet files; the driver adds them to the table in one commit, which also holds the number of the batch. A
batch whose number the table knows is not written again, so that it does not matter whether Spark had taken note of it.
No jar is needed.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

from trunkline.events.delta import PARTITIONED, Added, FileWriter, TableError, TablePlace, commit, library

if TYPE_CHECKING:
    import deltalake
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: The types that Delta has, as Spark names them; and decimals, which name their digits.
_KNOWN: Final = PARTITIONED | {"float", "double", "binary", "timestamp", "timestamp_ntz"}
#: The local property in which Spark has the query of a batch.
QUERY_ID: Final = "sql.streaming.queryId"


def delta_sink(
    path: str | PathLike[str],
    *,
    app_id: str | None = None,
    partition_by: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
    rows_per_file: int = 2_000_000,
) -> "Callable[[DataFrame, int], None]":
    """What `foreachBatch` calls to append a stream's batches to the Delta table at `path`, a directory or a URI.

    `app_id` names the query in the table, where the number of its last batch is kept. Without it, it is the id that
    Spark has given the query, which lasts as long as its checkpoint. Give another name when a query begins anew with an
    empty checkpoint: its batches have the old numbers again, and would be taken for known.

    A table that is not there is made, partitioned by the columns `partition_by`. Columns that a table does not have yet
    are added to it. A file has about `rows_per_file` rows at most. `storage_options` are those of deltalake.

    Raises:
        TableError: deltalake is not installed. In the query: the table and the batch do not fit together.
    """
    library()
    return DeltaSink(TablePlace(fspath(path), dict(storage_options or {})), app_id, tuple(partition_by), rows_per_file)


@dataclass(frozen=True)
class DeltaSink:
    """See `delta_sink`."""

    place: TablePlace
    app_id: str | None
    partition_by: tuple[str, ...]
    rows_per_file: int

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        app = self.app_id or _query_of(frame)
        schema = plain_schema(frame.schema.json())
        for name in self.partition_by:
            kind = next((one["type"] for one in schema["fields"] if one["name"] == name), None)
            if kind is None:
                raise TableError(f"partition_by: there is no column {name}")
            short = kind if isinstance(kind, str) else kind["type"]
            if short not in PARTITIONED:
                raise TableError(f"partition_by: column {name} is {short}, by which no folder can be named")
        table = self.place.table_for(library().Schema.from_json(json.dumps(schema)), self.partition_by)
        last = table.transaction_version(app)
        if last is not None and last >= batch:
            return
        columns = tuple(table.metadata().partition_columns)
        names = [one["name"] for one in schema["fields"]]
        writer = FileWriter(self.place, file_schema(table, names, columns), columns, self.rows_per_file)
        rows = frame.mapInArrow(_InTask(writer), "added string").collect()
        if rows:
            commit(table, app, batch, [Added(**json.loads(row.added)) for row in rows])


@dataclass(frozen=True)
class _InTask:
    """The function of a task: takes rows, and returns a row for each file that it has written."""

    writer: FileWriter

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        added = [json.dumps(asdict(one)) for one in self.writer.write(batches)]
        yield pa.record_batch({"added": pa.array(added, pa.string())})


def plain_schema(text: str) -> dict[str, Any]:
    """A schema as Spark writes it, as a table has it: anything may be null, and nothing is noted of a column.

    Raises:
        TableError: a column has a type that Delta does not know.
    """
    changed = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": dict[str, Any]()}

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {name: changed[name] if name in changed else plain(inner) for name, inner in value.items()}

    schema: dict[str, Any] = plain(json.loads(text))
    for one in schema["fields"]:
        for kind in _kinds(one["type"]):
            if kind not in _KNOWN and not kind.startswith("decimal("):
                raise TableError(f"column {one['name']} is {kind}, a type that Delta does not know")
    return schema


def _kinds(kind: Any) -> Iterator[str]:
    """The names of the types that a type is made of."""
    if isinstance(kind, str):
        yield kind
        return
    inner = [kind[place] for place in ("elementType", "keyType", "valueType") if place in kind]
    for one in (*inner, *(field["type"] for field in kind.get("fields", ()))):
        yield from _kinds(one)


def file_schema(table: "deltalake.DeltaTable", names: Sequence[str], partition_by: Sequence[str]) -> "pa.Schema":
    """What the files of a batch with these columns hold.

    Raises:
        TableError: the batch lacks a column that the table is partitioned by, or has no other.
    """
    import pyarrow as pa

    for name in partition_by:
        if name not in names:
            raise TableError(f"{table.table_uri}: the table is partitioned by {name}, which the query does not have")
    whole: Any = table.schema().to_arrow()
    held = [pa.schema(whole).field(name) for name in names if name not in partition_by]
    if not held:
        raise TableError(f"{table.table_uri}: there is no column beside those that the table is partitioned by")
    return pa.schema(held)


def _query_of(frame: "DataFrame") -> str:
    # there is none in Spark Connect
    context = getattr(frame.sparkSession, "sparkContext", None)
    query: str | None = None if context is None else context.getLocalProperty(QUERY_ID)
    if query is None:
        raise TableError("give app_id: Spark does not say which query this is")
    return query
