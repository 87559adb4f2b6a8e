"""Rows of a query as messages: `df.writeStream.format("trunkline")` and `df.write.format("trunkline")`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from trunkline.analytics.sinks.messages import Outgoing, Plan, plan
from trunkline.analytics.sinks.publisher import Publisher, client_id
from trunkline.analytics.sinks.settings import SinkError, SinkSettings, parse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: The local properties in which Spark has the query and the batch of a task. Both are in the checkpoint, so they
#: are the same when a batch is run again.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """What a task has done."""

    partition: int
    messages: int
    skipped: int


class _Rows:
    """Messages of a task's rows, counted."""

    def __init__(self, plan: Plan, partition: int) -> None:
        self._plan = plan
        self._partition = partition
        self.messages = 0
        self.skipped = 0

    def of(self, batches: "Iterator[pa.RecordBatch]") -> Iterator[Outgoing]:
        for batch in batches:
            for message in self._plan.messages(batch, self._partition, self.messages + self.skipped):
                if message is None:
                    self.skipped += 1
                else:
                    self.messages += 1
                    yield message


def publish(settings: SinkSettings, plan: Plan, query: str, batches: "Iterator[pa.RecordBatch]") -> TaskResult:
    """Publish the rows of this task, by one connection, which is not made if there are none.

    `query` stands for the query where Spark does not know of one.

    Raises:
        PublishError: a message was refused, or the broker cannot be reached.
        SinkError: a row cannot be a message.
    """
    task = TaskContext.get()
    assert task is not None
    partition = task.partitionId()
    query = settings.query or task.getLocalProperty(QUERY_ID) or query
    batch = task.getLocalProperty(BATCH_ID) or 0
    rows = _Rows(plan, partition)
    publisher = Publisher(settings, client_id(settings.client_id_prefix, query, partition), f"{query}/{batch}")
    publisher.publish(rows.of(batches))
    return TaskResult(partition, rows.messages, rows.skipped)


class MqttStreamWriter(DataSourceStreamArrowWriter):
    """Each batch is published at least once, with the same numbers if it is more than once."""

    def __init__(self, options: Mapping[str, str], schema: "StructType", overwrite: bool = False) -> None:
        """`overwrite` is output mode `complete`: each batch is the whole result, and all of it is published.

        Raises: OptionError, SinkError.
        """
        self._settings = parse(options)
        self._plan = plan(self._settings, schema)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskResult:  # type: ignore[override]
        return publish(self._settings, self._plan, "", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All has been acknowledged already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What has been published cannot be taken back; it is known by its numbers when it comes again."""


class MqttWriter(DataSourceArrowWriter):
    """The rows of a table, once; or of a batch, in `foreachBatch`."""

    def __init__(self, options: Mapping[str, str], schema: "StructType", overwrite: bool = False) -> None:
        """Raises: OptionError, SinkError."""
        if overwrite:
            raise SinkError('topics cannot be overwritten: use mode("append")')
        self._settings = parse(options)
        self._plan = plan(self._settings, schema)
        # made here and not in the tasks: a task that is tried again has the same
        self._query = str(uuid4())

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskResult:  # type: ignore[override]
        return publish(self._settings, self._plan, self._query, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All has been acknowledged already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What has been published cannot be taken back."""
