"""The data source that Spark instantiates; its parts are imported when Spark asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from legato.spark.connector.mistakes import told_at_once

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class LegatoDataSource(DataSource):
    """Queues and topics of a Legato broker; see `legato.spark.connector.options` for what may be said of them."""

    @classmethod
    def name(cls) -> str:
        return "legato"

    @told_at_once
    def schema(self) -> StructType | str:
        from legato.spark.connector.modes import check_readable
        from legato.spark.connector.options import source_options
        from legato.spark.connector.rows import ddl
        from legato.spark.connector.tables import is_for_table, own, schema_with

        options = source_options(own(self.options))
        if is_for_table(self.options):
            return schema_with(self.options, options)
        check_readable(options)
        return ddl(options)

    @told_at_once
    def reader(self, schema: StructType) -> DataSourceReader:
        from legato.spark.connector.batch import BatchReader
        from legato.spark.connector.options import source_options
        from legato.spark.connector.tables import columns_of, remembered

        return BatchReader(columns_of(source_options(remembered(self.options, schema)), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from legato.errors import ConfigError
        from legato.spark.connector.options import source_options
        from legato.spark.connector.stream import MisconfiguredStream, StreamReader
        from legato.spark.connector.tables import columns_of, remembered

        try:
            options = columns_of(source_options(remembered(self.options, schema)), schema)
            return StreamReader(options, refuses_skips=True)
        except ConfigError as error:
            return MisconfiguredStream(error)

    @told_at_once
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from legato.errors import ConfigError
        from legato.spark.connector.options import sink_options
        from legato.spark.connector.sink import BatchSink

        if overwrite:
            raise ConfigError('A queue is not overwritten: write with mode("append").')
        return BatchSink(sink_options(self.options), schema)

    @told_at_once
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from legato.spark.connector.options import sink_options
        from legato.spark.connector.sink import StreamSink

        return StreamSink(sink_options(self.options), schema)
