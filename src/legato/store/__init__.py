"""Durable state: one `Store` interface, a model in memory, and LMDB."""
