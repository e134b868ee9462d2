"""The ledger on disk: facts as Parquet segments, and as frames of Spark."""
