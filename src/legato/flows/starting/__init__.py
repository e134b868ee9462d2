"""Start of flows: the initiator, its pool of senders, futures of replies, cancellations."""
