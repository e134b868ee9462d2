"""Summaries of facts: a row for each message, commit and transaction, in NumPy (fast) and SQL (its model)."""
