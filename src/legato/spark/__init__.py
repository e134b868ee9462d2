"""The delivery ledger: facts as Parquet segments, their audit in Spark, and the report."""
