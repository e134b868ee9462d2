"""Entry point of `format("legato")`. Spark imports all packages with such names, so nothing heavy is imported here."""

from pyspark_legato.source import LegatoDataSource as DefaultSource

__all__ = ["DefaultSource"]
