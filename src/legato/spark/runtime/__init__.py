"""Processes: Spark's session, and processes of our own beside it."""
