"""Questions to a ledger in SQL, answered by DuckDB: views over its segments, without a JVM."""
