"""High availability: the lock on the store, the processes that want it, and their roles."""
