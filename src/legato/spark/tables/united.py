"""Tables of several groups, read as one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from legato.errors import ConfigError
from legato.spark.ledger.ledger_groups import GROUP_COLUMN, ledgers_of


def groups_in(tables: Path) -> dict[str, Path]:
    """The directories with the tables of a group each, by its name; none if these are the tables of one ledger."""
    return ledgers_of([tables]) if any(tables.glob(f"{GROUP_COLUMN}=*")) else {}


def united(frames: Mapping[str, DataFrame]) -> DataFrame:
    """Frames of several groups as one, with a column that says whose each row is.

    Raises:
        ConfigError: there are none.
    """
    if not frames:
        raise ConfigError("There are no tables of any group: `legato ledger run` makes them.")
    named = (frame.select(F.lit(name).alias(GROUP_COLUMN), "*") for name, frame in frames.items())
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), named)
