"""A table's options are with its columns when Spark has forgotten them."""

import pytest
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    VariantType,
)

from legato.errors import ConfigError
from legato.spark.connector.options import source_options
from legato.spark.connector.rows import fields
from legato.spark.connector.tables import columns_of, is_for_table, own, remembered, schema_with

CREATED = {"url": "amqp://one", "Queue": "q", "option.url": "amqp://one", "provider": "legato", "owner": "me"}


def test_the_options_of_a_table_come_back_with_its_schema() -> None:
    assert is_for_table(CREATED)
    schema = schema_with(CREATED, source_options(own(CREATED)))
    kept = StructType.fromJson(schema.jsonValue())
    assert remembered({}, kept) == {"url": "amqp://one", "queue": "q"}
    assert remembered({"QUEUE": "other"}, kept) == {"url": "amqp://one", "queue": "other"}


def test_a_table_has_the_columns_of_the_source() -> None:
    options = source_options({"url": "amqp://one", "queue": "q"})
    assert schema_with({}, options).names == list(fields(options))


def test_a_schema_of_fewer_columns_has_those() -> None:
    """Of a table that was made before there was a column, or as a user wants them."""
    options = source_options({"url": "amqp://one", "queue": "q"})
    names = [name for name in fields(options) if name != "omitted_body_bytes"]
    schema = StructType([field for field in schema_with({}, options).fields if field.name in names])
    assert list(fields(columns_of(options, schema))) == names
    assert columns_of(options, schema_with({}, options)) is columns_of(options, StructType()) is options
    with pytest.raises(ConfigError, match="columns names 'colour'"):
        columns_of(options, StructType().add("colour", "string"))


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("seq", IntegerType(), "column seq is bigint, not int.* cast the column afterwards"),
        ("body", StringType(), "column body is binary, not string. With the option payload = text it is string"),
        ("properties", MapType(StringType(), LongType()), "bigint>. With the option properties = variant"),
    ],
)
def test_a_column_of_another_type_is_refused_before_tasks_fail_of_it(name: str, kind: DataType, said: str) -> None:
    """`.schema("seq int, body string")` failed in the tasks, with a stack trace of Arrow's."""
    options = source_options({"url": "amqp://one", "queue": "q"})
    with pytest.raises(ConfigError, match=said):
        columns_of(options, StructType().add("message_id", "string").add(name, kind))


def test_columns_may_have_the_types_of_the_source() -> None:
    given = {"url": "amqp://one", "queue": "q"}
    rows = StructType().add("body", StringType()).add("timestamp", TimestampNTZType())
    assert columns_of(source_options(given | {"payload": "text"}), rows).columns == ("body", "timestamp")
    variants = source_options(given | {"properties": "variant"})
    assert columns_of(variants, StructType().add("properties", VariantType())).columns == ("properties",)


def test_what_is_no_table_keeps_its_options() -> None:
    assert not is_for_table({"url": "amqp://one"})
    assert remembered({"URL": "amqp://one"}, StructType()) == {"url": "amqp://one"}
