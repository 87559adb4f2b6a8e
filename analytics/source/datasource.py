"""Spark's format `trunkline`: it reads events and writes messages."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from trunkline.analytics.source.options import Mode, understood
from trunkline.events.schema import SPARK_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from trunkline.analytics.source.options import SourceSettings


class TrunklineDataSource(DataSource):
    """Reads an event log in batches and as a stream. Written to, it publishes messages to a broker."""

    @classmethod
    def name(cls) -> str:
        return "trunkline"

    def schema(self) -> str:
        # asked for by load(): errors are better raised there than when the first query runs
        self._settings(None)
        return SPARK_SCHEMA

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from trunkline.analytics.source.batch import EventReader, PushingEventReader

        settings = self._settings("batch")
        return (PushingEventReader if settings.push_filters else EventReader)(settings, schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        from trunkline.analytics.source.stream import EventStreamReader

        return EventStreamReader(self._settings("stream"), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from trunkline.analytics.sinks.mqtt import MqttWriter

        return MqttWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from trunkline.analytics.sinks.mqtt import MqttStreamWriter

        return MqttStreamWriter(self.options, schema)

    def _settings(self, mode: Mode | None) -> "SourceSettings":
        from trunkline.analytics.source.places import check_place

        settings = understood(self.options, mode)
        check_place(settings)
        return settings
