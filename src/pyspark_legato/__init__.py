"""Lets Spark find `format("legato")`: it looks for packages of such a name, so nothing heavy is imported here."""

from pyspark_legato.source import LegatoDataSource as DefaultSource

__all__ = ["DefaultSource"]
