"""What must not be in a ledger: all checks, each a question whose answer is the rows that offend.

An empty answer passes. Every check finds its own kind of fault only, so that a report names causes, not echoes.
"""

from legato.spark.checks import deliveries, log, messages, producers, waiting

CHECKS = (
    log.POSITIONS_MISSING,
    log.RECORDS_TORN,
    waiting.LOST,
    waiting.RESURRECTED,
    producers.DUPLICATE_NEVER_STORED,
    producers.DUPLICATE_ID_NEVER_KEPT,
    deliveries.EXPIRED_TOO_EARLY,
    deliveries.DIED_TOO_EARLY,
    producers.NUMBER_STORED_TWICE,
    producers.STORED_AGAIN_ANEW,
    producers.BATCH_STORED_TWICE,
    producers.DUPLICATE_ID_STORED_TWICE,
    producers.SENT_OUT_OF_ORDER,
    messages.PLACE_TAKEN_TWICE,
    messages.CONSUMED_TWICE,
    messages.CONSUMED_NEVER_STORED,
    messages.CONSUMED_BEFORE_STORED,
    messages.ATTEMPT_FORGOTTEN,
    messages.ATTEMPT_INVENTED,
    deliveries.REDELIVERED_WITHOUT_FLAG,
    deliveries.SECOND_HOLDER,
    deliveries.OUT_OF_ORDER_IN_GROUP,
    messages.EXPIRED_CONSUMED,
    waiting.USED_AFTER_DELETION,
    messages.QUEUE_UNKNOWN,
    deliveries.DEAD_LETTER_MISSING,
    deliveries.MOVED_MESSAGE_MISSING,
    waiting.DELETED_UNCOUNTED,
    log.UNCOMMITTED_WORK,
    log.PARTIAL_TRANSACTION,
    log.TWO_OUTCOMES,
    deliveries.ACKNOWLEDGED_UNASSIGNED,
    log.EPOCHS_MIXED,
    log.MARKS_MISSED,
)
"""All checks, in the order in which a reader wants the answers: first whether the ledger is all there."""

SAYS = {check.name: check.says for check in CHECKS}
"""What each check says, by its name."""
