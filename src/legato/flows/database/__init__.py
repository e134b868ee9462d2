"""The database of a service: inbox, outbox, and the transactions of stages in it."""
