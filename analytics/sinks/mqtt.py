"""Rows of a query as messages: `df.writeStream.format("trunkline")` and `df.write.format("trunkline")`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from trunkline.analytics.sinks.messages import Outgoing, plan
from trunkline.analytics.sinks.publisher import Publisher, client_id
from trunkline.analytics.sinks.settings import SinkError, parse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: The local properties in which Spark has the query and the batch of a task. Both are in the checkpoint, so they
#: are the same when a batch is run again.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """The result of a task."""

    partition: int
    messages: int
    skipped: int


class _Publishing:
    """Publishes the rows of each task. There is nothing to commit: all has been acknowledged by then. What has been
    published before a failure cannot be taken back; it is known by its numbers when it comes again."""

    def __init__(self, options: Mapping[str, str], schema: "StructType", query: str = "") -> None:
        """`query` stands for the query where Spark does not know of one.

        Raises: OptionError, SinkError.
        """
        self._settings = parse(options)
        self._plan = plan(self._settings, schema)
        self._query = query

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskResult:
        """Publish the rows of this task, by one connection, which is not made if there are none.

        Raises:
            PublishError: a message was refused, or the broker cannot be reached.
            SinkError: a row cannot be a message.
        """
        task = TaskContext.get()
        assert task is not None
        partition = task.partitionId()
        query = self._settings.query or task.getLocalProperty(QUERY_ID) or self._query
        batch = task.getLocalProperty(BATCH_ID) or 0
        counts: Counter[bool] = Counter()

        def messages() -> Iterator[Outgoing]:
            for rows in iterator:
                for message in self._plan.messages(rows, partition, counts.total()):
                    counts[message is not None] += 1
                    if message is not None:
                        yield message

        name = client_id(self._settings.client_id_prefix, query, partition)
        Publisher(self._settings, name, f"{query}/{batch}").publish(messages())
        return TaskResult(partition, counts[True], counts[False])


class MqttStreamWriter(_Publishing, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Each batch is published at least once, with the same numbers if it is more than once. In output mode `complete`
    each batch is the whole result, and all of it is published."""


class MqttWriter(_Publishing, DataSourceArrowWriter):  # type: ignore[misc]
    """The rows of a table, once; or of a batch, in `foreachBatch`."""

    def __init__(self, options: Mapping[str, str], schema: "StructType", overwrite: bool = False) -> None:
        """Raises: OptionError, SinkError."""
        if overwrite:
            raise SinkError('topics cannot be overwritten: use mode("append")')
        # named here and not in the tasks: a task that is tried again has the same
        super().__init__(options, schema, str(uuid4()))
