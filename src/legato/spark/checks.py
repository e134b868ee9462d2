"""What must not be in a ledger: all checks, each a question whose answer is the rows that offend.

An empty answer passes. Every check finds its own kind of fault only, so that a report names causes, not echoes.
"""

from legato.spark import checks_facts, checks_log, checks_messages, checks_producers, checks_waiting

CHECKS = (
    checks_log.POSITIONS_MISSING,
    checks_log.RECORDS_TORN,
    checks_waiting.LOST,
    checks_waiting.RESURRECTED,
    checks_producers.DUPLICATE_NEVER_STORED,
    checks_producers.DUPLICATE_ID_NEVER_KEPT,
    checks_facts.EXPIRED_TOO_EARLY,
    checks_facts.DIED_TOO_EARLY,
    checks_producers.NUMBER_STORED_TWICE,
    checks_producers.STORED_AGAIN_ANEW,
    checks_producers.BATCH_STORED_TWICE,
    checks_producers.DUPLICATE_ID_STORED_TWICE,
    checks_producers.SENT_OUT_OF_ORDER,
    checks_messages.PLACE_TAKEN_TWICE,
    checks_messages.CONSUMED_TWICE,
    checks_messages.CONSUMED_NEVER_STORED,
    checks_messages.CONSUMED_BEFORE_STORED,
    checks_messages.ATTEMPT_FORGOTTEN,
    checks_messages.ATTEMPT_INVENTED,
    checks_facts.REDELIVERED_WITHOUT_FLAG,
    checks_facts.SECOND_HOLDER,
    checks_facts.OUT_OF_ORDER_IN_GROUP,
    checks_messages.EXPIRED_CONSUMED,
    checks_waiting.USED_AFTER_DELETION,
    checks_messages.QUEUE_UNKNOWN,
    checks_facts.DEAD_LETTER_MISSING,
    checks_facts.MOVED_MESSAGE_MISSING,
    checks_waiting.DELETED_UNCOUNTED,
    checks_log.UNCOMMITTED_WORK,
    checks_log.PARTIAL_TRANSACTION,
    checks_log.TWO_OUTCOMES,
    checks_facts.ACKNOWLEDGED_UNASSIGNED,
    checks_log.EPOCHS_MIXED,
    checks_log.MARKS_MISSED,
)
"""All checks, in the order in which a reader wants the answers: first whether the ledger is all there."""

SAYS = {check.name: check.says for check in CHECKS}
"""What each check says, by its name."""
