"""Options of tables (`CREATE TABLE ... USING legato`): Spark 4.3 hands them over once, when the table is created.

Whoever reads or writes the table later is given its columns alone. So the options go with the first column, as what
Spark calls its metadata, which the catalog keeps.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from legato.errors import ConfigError
from legato.spark.connector.options import SourceOptions, check_columns
from legato.spark.connector.rows import fields, spark_types

_KEY = "legato"
_OF_TABLES = ("provider", "owner", "location", "external", "comment", "collation", "is_managed_location", "table_type")
"""What Spark says of a table among its options."""
_REPEATED = "option."
"""Spark hands over each option of a table twice, once with this before it."""


def is_for_table(options: Mapping[str, str]) -> bool:
    """Whether the options are those of a table that is being created."""
    return "provider" in options


def own(options: Mapping[str, str]) -> dict[str, str]:
    """The options without what Spark adds to them."""
    return {
        name: value
        for name, value in options.items()
        if name.lower() not in _OF_TABLES and not name.lower().startswith(_REPEATED)
    }


def schema_with(options: Mapping[str, str], source: SourceOptions) -> StructType:
    """The schema of a table, which remembers its options."""
    first, *others = from_arrow_schema(pa.schema(list(fields(source).items()))).fields
    return StructType([StructField(first.name, first.dataType, metadata={_KEY: own(options)}), *others])


def columns_of(options: SourceOptions, schema: StructType) -> SourceOptions:
    """The options for a schema that has other columns: of a table of an older version, or as a user wants them.

    Raises:
        ConfigError: there is no such column, or it is of another type.
    """
    names = tuple(schema.names)
    _check_types(options, schema)
    if not names or names == tuple(fields(options)):
        return options
    wanted = msgspec.structs.replace(options, columns=names)
    check_columns(wanted)
    return wanted


def _check_types(options: SourceOptions, schema: StructType) -> None:
    """See that columns have the types of the source, which Spark would find out in the tasks.

    Those of a missing name are not looked at.

    Raises:
        ConfigError: one has another type.
    """
    types = spark_types(msgspec.structs.replace(options, columns=()))
    for field in schema.fields:
        # What `timestamp` is, a setting of Spark says.
        given, kind = field.dataType.simpleString().replace("timestamp_ntz", "timestamp"), types.get(field.name)
        if kind is not None and given != kind:
            meant = ""
            if field.name == "body" and given == "string":
                meant = " With the option payload = text it is string."
            if field.name == "properties":
                meant = " With the option properties = variant it is variant, otherwise map<string,string>."
            raise ConfigError(
                f"The column {field.name} is {kind}, not {given}.{meant} Leave out the schema, and cast the column "
                "afterwards."
            )


def remembered(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The options, with those that the table was created with where nothing else is said."""
    kept: dict[str, str] = {}
    for field in schema.fields:
        kept |= (field.metadata or {}).get(_KEY, {})
    return {name.lower(): value for name, value in kept.items()} | {
        name.lower(): value for name, value in own(options).items()
    }
