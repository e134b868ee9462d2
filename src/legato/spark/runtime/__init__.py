"""Processes: Spark's session, and a pool of our own beside it."""
