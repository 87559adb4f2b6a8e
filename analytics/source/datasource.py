"""Spark's format `trunkline`: it reads events and writes messages."""

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql.datasource import DataSource

from trunkline.analytics.options import OptionError
from trunkline.analytics.source.options import Mode, of_table, understood
from trunkline.analytics.source.wrong_options import in_one_line
from trunkline.events.columns import Column, arrow_schema, spark_schema
from trunkline.events.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from trunkline.analytics.source.options import SourceSettings


#: Of the first column of a table in Spark's catalog: the table's options. Spark hands those to nobody who reads it, and
#: the schema to all.
_OPTIONS: Final = "trunkline.options"


@contextmanager
def _needing(version: str, what: str) -> "Generator[None]":
    try:
        yield
    except ImportError:
        raise OptionError(f"{what}: PySpark {version} or newer is needed; this is {pyspark.__version__}") from None


def _columns(settings: "SourceSettings") -> tuple[Column, ...]:
    if settings.table is None:
        return COLUMNS
    from trunkline.events.kinds import TABLES, columns_of

    return columns_of((*TABLES[settings.table].kinds, *settings.kinds))


class TrunklineDataSource(DataSource):
    """Reads an event log in batches and as a stream. Written to, it publishes messages to a broker."""

    @classmethod
    def name(cls) -> str:
        return "trunkline"

    @in_one_line()
    def schema(self) -> "str | StructType":
        # asked for by load(): errors are better raised there than when the first query runs
        columns = _columns(self._settings(None))
        own = of_table(self.options)
        if own is None:
            return spark_schema(columns)
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(arrow_schema(columns))
        schema.fields[0].metadata = {_OPTIONS: json.dumps(own)}
        return schema

    @in_one_line()
    def reader(self, schema: "StructType") -> "DataSourceReader":
        settings = self._settings("batch", schema)
        if settings.push_filters:
            with _needing("4.1", "pushFilters"):
                from trunkline.analytics.source.pushdown import PushingEventReader
            return PushingEventReader(settings, schema)
        from trunkline.analytics.source.batch import EventReader

        return EventReader(settings, schema)

    # Spark's process for a stream forgets an error in here for one of its own, unless it shows both tracebacks
    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        settings = self._settings("stream", schema)
        with _needing("4.2", "streams"):
            from trunkline.analytics.source.stream import EventStreamReader
        return EventStreamReader(settings, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from trunkline.analytics.sinks.mqtt import MqttWriter

        return MqttWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from trunkline.analytics.sinks.mqtt import MqttStreamWriter

        return MqttStreamWriter(self.options, schema)

    def _settings(self, mode: Mode | None, schema: "StructType | None" = None) -> "SourceSettings":
        from trunkline.analytics.source.places import check_place

        options: Mapping[str, str] = of_table(self.options) or self.options
        if schema is not None and schema.fields and (own := (schema.fields[0].metadata or {}).get(_OPTIONS)):
            options = {**json.loads(own), **options}
        settings = understood(options, mode)
        check_place(settings)
        return settings
