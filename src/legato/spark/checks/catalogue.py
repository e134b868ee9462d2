"""All checks of an audit, in the order of its report. docs/reference/audit-checks.md shows them as a table.

Every check finds its own kind of fault only, so that a report names causes, not echoes.
"""

from legato.spark.checks import deliveries, log, messages, producers, waiting

CHECKS = (
    log.positions_missing,
    log.records_torn,
    waiting.lost,
    waiting.resurrected,
    producers.duplicate_never_stored,
    producers.duplicate_id_never_kept,
    deliveries.expired_too_early,
    deliveries.died_too_early,
    producers.number_stored_twice,
    producers.stored_again_anew,
    producers.batch_stored_twice,
    producers.duplicate_id_stored_twice,
    producers.sent_out_of_order,
    messages.place_taken_twice,
    messages.consumed_twice,
    messages.consumed_never_stored,
    messages.consumed_before_stored,
    messages.attempt_forgotten,
    messages.attempt_invented,
    deliveries.redelivered_without_flag,
    deliveries.second_holder,
    deliveries.out_of_order_in_group,
    messages.expired_consumed,
    waiting.used_after_deletion,
    messages.queue_unknown,
    deliveries.dead_letter_missing,
    deliveries.moved_message_missing,
    waiting.deleted_uncounted,
    log.uncommitted_work,
    log.partial_transaction,
    log.two_outcomes,
    deliveries.acknowledged_unassigned,
    log.epochs_mixed,
    log.marks_missed,
)
"""All checks, in the order in which a reader wants the answers: first whether the ledger is all there."""

WORDINGS = {check.name: check.wording for check in CHECKS}
"""What a report says of each check, by its name."""
