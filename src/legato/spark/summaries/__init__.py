"""What facts come to: a row for each message, commit and transaction, in NumPy (fast) and in SQL (its model)."""
