"""Results into a Delta table, each batch once: `df.writeStream.foreachBatch(delta_sink(path))`.

Tasks write Parquet files, of which nobody knows yet; the driver adds them to the table in one commit, which also holds
the number of the batch. A batch whose number the table knows is not written again, so that it does not matter whether
Spark had taken note of it. No jar is needed: the table is written by the library deltalake.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

from trunkline.analytics.sinks.delta_files import PARTITIONED, Added, FileWriter
from trunkline.analytics.sinks.settings import SinkError

if TYPE_CHECKING:
    import deltalake
    from pyspark.sql import DataFrame

#: The types that Delta has, as Spark names them; and decimals, which name their digits.
_KNOWN: Final = PARTITIONED | {"float", "double", "binary", "timestamp", "timestamp_ntz"}
#: By this name Spark tells a batch which query it belongs to.
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
    Spark has given the query, which lasts as long as its checkpoint. Whoever gives a name must give another when a
    query begins anew with an empty checkpoint: its batches have the old numbers again, and would be taken for known.

    A table that is not there is made, partitioned by the columns `partition_by`. Columns that a table does not have yet
    are added to it. A file has about `rows_per_file` rows at most. `storage_options` are those of deltalake.

    Raises:
        SinkError: deltalake is not installed. In the query: the table and the batch do not fit together.
    """
    _deltalake()
    return DeltaSink(fspath(path), app_id, tuple(partition_by), dict(storage_options or {}), rows_per_file)


@dataclass(frozen=True)
class DeltaSink:
    """See `delta_sink`."""

    path: str
    app_id: str | None
    partition_by: tuple[str, ...]
    storage_options: dict[str, str] = field(repr=False)
    rows_per_file: int

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        app = self.app_id or _query_of(frame)
        schema = plain_schema(frame.schema.json())
        table = self.table(schema)
        if is_committed(table, app, batch):
            return
        columns = tuple(table.metadata().partition_columns)
        writer = FileWriter(
            self.path, file_schema(table, schema, columns), columns, self.storage_options, self.rows_per_file
        )
        rows = frame.mapInArrow(writer, "added string").collect()
        commit(table, app, batch, [Added(**json.loads(row.added)) for row in rows])

    def table(self, schema: dict[str, Any]) -> "deltalake.DeltaTable":
        """The table, which has all columns of the schema.

        Raises:
            SinkError: it has another type for one of them, or is partitioned otherwise.
        """
        lake = _deltalake()
        wanted = lake.Schema.from_json(json.dumps(schema))
        for name in self.partition_by:
            kind = next((one["type"] for one in schema["fields"] if one["name"] == name), None)
            if kind is None:
                raise SinkError(f"partition_by: there is no column {name}")
            if _short(kind) not in PARTITIONED:
                raise SinkError(f"partition_by: column {name} is {_short(kind)}, by which no folder can be named")
        if not lake.DeltaTable.is_deltatable(self.path, self.storage_options):
            partition_by = list(self.partition_by)
            lake.DeltaTable.create(
                self.path, wanted, mode="ignore", partition_by=partition_by, storage_options=self.storage_options
            )
        table: deltalake.DeltaTable = lake.DeltaTable(self.path, storage_options=self.storage_options)
        if self.partition_by and list(self.partition_by) != table.metadata().partition_columns:
            there = ", ".join(table.metadata().partition_columns) or "nothing"
            raise SinkError(f"{self.path}: the table is partitioned by {there}, not by {', '.join(self.partition_by)}")
        self._widen(table, wanted)
        return table

    def _widen(self, table: "deltalake.DeltaTable", wanted: "deltalake.Schema") -> None:
        """Give the table the columns that it lacks."""
        there = {one.name.lower(): one for one in table.schema().fields}
        missing: list[deltalake.Field] = []
        for one in wanted.fields:
            known = there.get(one.name.lower())
            if known is None:
                missing.append(one)
            elif known.name != one.name:
                raise SinkError(f"{self.path}: the table has a column {known.name}, which is not told from {one.name}")
            elif known.type != one.type:
                raise SinkError(f"{self.path}: column {one.name} is {known.type} in the table and {one.type} here")
        if missing:
            table.alter.add_columns(missing)
            table.update_incremental()


def is_committed(table: "deltalake.DeltaTable", app: str, batch: int) -> bool:
    """Whether the table has this batch already, or a later one."""
    last = table.transaction_version(app)
    return last is not None and last >= batch


def commit(table: "deltalake.DeltaTable", app: str, batch: int, files: Sequence[Added]) -> None:
    """Add the files to the table as this batch. A batch without files leaves no trace.

    Raises:
        SinkError: somebody else has committed under the same name meanwhile. Nothing was added.
    """
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction

    lake = _deltalake()
    if not files:
        return
    actions: list[Any] = [
        AddAction(file.path, file.size, file.values, file.written, True, file.statistics) for file in files
    ]
    try:
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            table.metadata().partition_columns,
            commit_properties=lake.CommitProperties(app_transactions=[lake.Transaction(app, batch)]),
        )
    except CommitFailedError as error:
        raise SinkError(
            f"{table.table_uri}: batch {batch} of {app} was not added: {error} Does the query run twice?"
        ) from None


def plain_schema(text: str) -> dict[str, Any]:
    """A schema as Spark writes it, as a table has it: anything may be null, and nothing is noted of a column.

    Raises:
        SinkError: a column has a type that Delta does not know.
    """
    schema: dict[str, Any] = _plain(json.loads(text))
    for one in schema["fields"]:
        for kind in _kinds(one["type"]):
            if kind not in _KNOWN and not kind.startswith("decimal("):
                raise SinkError(f"column {one['name']} is {kind}, a type that Delta does not know")
    return schema


def _kinds(kind: Any) -> Iterator[str]:
    """The names of the types that a type is made of."""
    if isinstance(kind, str):
        yield kind
        return
    for place in ("elementType", "keyType", "valueType"):
        if place in kind:
            yield from _kinds(kind[place])
    for one in kind.get("fields", ()):
        yield from _kinds(one["type"])


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    changed: dict[str, Any] = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}
    return {name: changed[name] if name in changed else _plain(inner) for name, inner in value.items()}


def _short(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def file_schema(table: "deltalake.DeltaTable", schema: dict[str, Any], partition_by: Sequence[str]) -> bytes:
    """What the files of a batch hold, as Arrow writes schemas.

    Raises:
        SinkError: the batch lacks a column that the table is partitioned by, or has no other.
    """
    import pyarrow as pa

    names = [one["name"] for one in schema["fields"]]
    for name in partition_by:
        if name not in names:
            raise SinkError(f"{table.table_uri}: the table is partitioned by {name}, which the query does not have")
    whole: Any = table.schema().to_arrow()
    whole = pa.schema(whole)
    held = pa.schema([whole.field(name) for name in names if name not in partition_by])
    if not held.names:
        raise SinkError(f"{table.table_uri}: there is no column beside those that the table is partitioned by")
    return held.serialize().to_pybytes()


def _query_of(frame: "DataFrame") -> str:
    # there is none in Spark Connect
    context = getattr(frame.sparkSession, "sparkContext", None)
    query: str | None = None if context is None else context.getLocalProperty(QUERY_ID)
    if query is None:
        raise SinkError("give app_id: Spark does not tell which query this is")
    return query


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError:
        raise SinkError("the Delta sink needs deltalake: pip install 'trunkline[lake]'") from None
    return deltalake
