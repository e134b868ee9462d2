"""Who serves: the lock on the store, the processes that want it, and the roles they take."""
