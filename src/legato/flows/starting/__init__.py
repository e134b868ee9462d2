"""Beginning flows: the initiator, the threads that send, futures, cancellations."""
