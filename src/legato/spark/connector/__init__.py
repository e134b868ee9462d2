"""`format("legato")`: queues and topics as Spark tables and streams, and Spark's rows as messages."""
