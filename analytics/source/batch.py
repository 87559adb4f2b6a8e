"""`spark.read.format("trunkline")`: all rows that are there when the query is planned."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from trunkline.analytics.source.planning import Range, Window
from trunkline.analytics.source.rows import RowReader
from trunkline.analytics.source.view import View
from trunkline.analytics.source.wrong_options import in_one_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from trunkline.analytics.source.options import SourceSettings


class EventReader(DataSourceReader):
    """Rows from `startingOffsets` to `endingOffsets`."""

    def __init__(self, settings: "SourceSettings", schema: "StructType") -> None:
        self._settings = settings
        self._rows = RowReader(settings, schema)
        self._window = Window(settings.starting_timestamp, settings.ending_timestamp)

    @in_one_line()
    def partitions(self) -> Sequence[InputPartition]:
        view = View(self._settings)
        start = view.offsets(self._settings.starting_offsets, "startingOffsets")
        end = view.offsets(self._settings.ending_offsets, "endingOffsets")
        end = {node: number for node, number in end.items() if self._wanted(node)}
        # Spark asks for one partition of its own when there are none
        return [InputPartition(part) for part in view.ranges(start, end, self._window)] or [InputPartition(None)]

    def _wanted(self, node: str) -> bool:
        return True

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        part: Range | None = partition.value
        return iter(()) if part is None else self._rows.read(part)
