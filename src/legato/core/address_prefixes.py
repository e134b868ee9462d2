"""Prefixes of the names of queues and topics, that clients write or only the broker gives (amqp.md A2)."""

TOPIC_PREFIX = "topic://"
QUEUE_PREFIX = "queue://"
TEMPORARY_QUEUE_PREFIX = "temp-queue://"
TEMPORARY_TOPIC_PREFIX = "temp-topic://"
DURABLE_PREFIX = "subscription://"
VOLATILE_PREFIX = "volatile://"
ASSIGNMENT_PREFIX = "assignment://"
TEMPORARY_PREFIXES = (TEMPORARY_QUEUE_PREFIX, TEMPORARY_TOPIC_PREFIX)
OWN_PREFIXES = (DURABLE_PREFIX, VOLATILE_PREFIX, ASSIGNMENT_PREFIX, "$")
"""Of names that only the broker gives."""
UNFIT_PREFIXES = (*OWN_PREFIXES, *TEMPORARY_PREFIXES, TOPIC_PREFIX, QUEUE_PREFIX)
"""Of no queue or topic that is made by its name."""
