"""Where facts become durable: one `Store` interface, a model in memory, and LMDB."""
