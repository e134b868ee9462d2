"""The tables of several groups' ledgers: those of each group under `TABLES/broker_group=NAME`, read as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from legato.errors import ConfigError
from legato.spark.ledger.ledger_groups import GROUP_COLUMN
from legato.spark.tables.ledger_tables import LedgerTables
from legato.spark.tables.united import united


class GroupTables:
    """The tables made of several ledgers, one group's after the other's.

    Args:
        spark: a session.
        ledgers: by the name of the group, the directory of its segments.
        tables: directory of the tables; it is made if need be.
        options: those of `LedgerTables`, for each.

    Raises:
        ConfigError: there is no such ledger, nowhere for tables, or what the format needs is not installed.
    """

    def __init__(self, spark: SparkSession, ledgers: Mapping[str, Path | str], tables: Path, **options: Any) -> None:
        if not ledgers:
            raise ConfigError("There is no ledger to make tables of.")
        self._made = {
            name: LedgerTables(spark, str(ledger), tables / f"{GROUP_COLUMN}={name}", **options)
            for name, ledger in ledgers.items()
        }

    def run_once(self) -> None:
        """Take over all that the ledgers hold now.

        Raises:
            StoreCorruptError: a segment is not whole; groups before this one are taken over.
        """
        for made in self._made.values():
            made.run_once()

    def run(self, every_s: float, stopped: Callable[[float], bool]) -> None:
        """Take over what comes, every so many seconds, until `stopped`, which waits for at most its argument."""
        while True:
            for made in self._made.values():
                made.run_once()
                if stopped(0.0):
                    return
            if stopped(every_s):
                return

    def last_batch(self) -> int:
        """The highest number of a portion that was taken over, -1 if none was."""
        return max(made.last_batch() for made in self._made.values())

    def silver(self) -> DataFrame:
        """One row for each message: `broker_group string`, then the columns of `LedgerTables.silver`.

        Raises:
            ConfigError: nothing was taken over yet.
        """
        return united({name: made.silver() for name, made in self._made.items() if made.last_batch() >= 0})
