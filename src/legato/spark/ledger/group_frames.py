"""Facts of several groups of brokers as one frame, with a column that says whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from legato.errors import ConfigError
from legato.spark.ledger.fact_frames import READ_OPTIONS, SCHEMA, paths_of, read_ledger
from legato.spark.ledger.ledger_groups import GROUP_COLUMN, of_one_root


def read_ledgers(spark: SparkSession, ledgers: Mapping[str, Path | str]) -> DataFrame:
    """All facts of several ledgers as one table: `broker_group string`, then the columns of `read_ledger`.

    Numbers of positions, epochs, queues, producers and consumers are those of a group: join and group by
    `broker_group` as well.

    Args:
        spark: a session.
        ledgers: by the name of the group, the directory of its segments. Many are best kept under one directory as
            `broker_group=NAME`: then Spark reads them in one scan, and passes over groups that are not asked for.

    Raises:
        ConfigError: there are none.
    """
    if not ledgers:
        raise ConfigError("There is no ledger to read.")
    paths = {name: Path(path) for name, path in ledgers.items() if "://" not in str(path)}
    root = of_one_root(paths) if len(paths) == len(ledgers) else None
    if root is not None:
        every = [file for path in paths.values() for file in paths_of(str(path))]
        reader = spark.read.schema(f"{SCHEMA}, {GROUP_COLUMN} string").option("basePath", str(root))
        found = reader.options(**READ_OPTIONS).parquet(*every)
        return found.select(GROUP_COLUMN, *(name for name in found.columns if name != GROUP_COLUMN))
    frames = [
        read_ledger(spark, ledger).select(F.lit(name).alias(GROUP_COLUMN), "*") for name, ledger in ledgers.items()
    ]
    return reduce(DataFrame.unionAll, frames)
