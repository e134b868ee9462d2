"""The failover contracts as data, and what the client's memory makes of them when a connection is lost."""

from __future__ import annotations

import pytest

from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.client import AcknowledgementOutcome
from legato.client.failover.contract import CONTRACTS
from legato.client.failover.uri import FAILOVER_CONTRACTS, parse_uri
from legato.client.links.deliveries import AckBatch, Delivery, DeliveryState, Incoming, finish
from legato.client.links.session_state import Outgoing, Send, Transaction, is_stored_already
from legato.client.links.transaction_outcome import UNKNOWN, Query, lost_during_commit
from legato.errors import IllegalStateError, JMSError, TransactionRolledBackError


def tag(seq: int) -> bytes:
    return seq.to_bytes(8, "big")


def presented(incoming: Incoming, *seqs: int) -> list[Delivery]:
    """What the application has taken from the inbox."""
    for seq in seqs:
        incoming.arrived(None, seq, tag(seq), b"first")
    return [incoming.inbox.popleft() for _ in seqs]


# -- the table -----------------------------------------------------------------------------------------------


def test_the_contracts_are_those_of_the_table_and_options_can_name_each() -> None:
    assert FAILOVER_CONTRACTS == ("legato", "ems", "hornetq", "gigaspaces")
    for name in FAILOVER_CONTRACTS:
        assert parse_uri(f"amqp://a?failover_contract={name}").options.contract is CONTRACTS[name]


def test_only_hornetq_releases_calls_and_needs_to_be_asked_to_fail_over() -> None:
    """CONTRACT E7, E9, E11, E18."""
    for name, contract in CONTRACTS.items():
        hornetq = name == "hornetq"
        assert contract.releases_blocked_calls is hornetq
        assert contract.resends is not hornetq
        assert contract.redelivers_on_listener_error is (name == "legato")
        assert contract.exception_on_failover is hornetq
        assert contract.failover_on_server_shutdown is not hornetq
        assert contract.failover_on_initial_connection is not hornetq


def test_late_acknowledgements_raise_by_contract() -> None:
    """CONTRACT B12, E17, A10."""
    late = {name: contract.late_acknowledgement for name, contract in CONTRACTS.items()}
    assert late == {
        "legato": IllegalStateError,
        "ems": IllegalStateError,
        "hornetq": None,
        "gigaspaces": TransactionRolledBackError,
    }


@pytest.mark.parametrize(("option", "reported"), [("", True), ("&exception_on_failover=false", False)])
def test_the_option_overrides_the_contract(option: str, reported: bool) -> None:
    """CONTRACT B5, E18."""
    assert parse_uri(f"amqp://a?failover_contract=hornetq{option}").options.reports_failovers is reported


# -- deliveries that are presented again ---------------------------------------------------------------------


def test_what_is_to_be_presented_again_comes_into_the_inbox_and_what_is_kept_does_not() -> None:
    """CONTRACT A15, B7: the same delivery, with its new bytes."""
    for again in (True, False):
        incoming = Incoming()
        first, second = presented(incoming, 1, 2)
        assert incoming.connection_lost(keep=True, again=again) == [first, second]
        assert incoming.held() == [1, 2]
        incoming.claims_answered(2, [])
        known = incoming.arrived(None, 7, tag(1), b"second")
        assert known is (None if again else first)
        assert list(incoming.inbox) == ([first] if again else [])
        assert (first.data, first.again) == ((b"second", True) if again else (b"first", False))


def test_what_is_to_be_presented_again_is_claimed_again_after_another_loss() -> None:
    """CONTRACT B12: or an acknowledgement of it could not be answered truly."""
    incoming = Incoming()
    (first,) = presented(incoming, 1)
    incoming.connection_lost(keep=True, again=True)
    incoming.claims_answered(1, [])
    incoming.arrived(None, 7, tag(1), b"second")
    incoming.connection_lost(keep=True, again=True)
    assert not incoming.inbox
    assert incoming.held() == [1]
    assert incoming.claims_answered(0, [1]) == [first]
    assert first.state is DeliveryState.ELSEWHERE


@pytest.mark.parametrize("resolve", [True, False])
def test_an_acknowledgement_in_flight_is_waited_for_or_forgotten(resolve: bool) -> None:
    """CONTRACT A10, E11."""
    incoming = Incoming()
    (first,) = presented(incoming, 1)
    batch = first.batch = AckBatch([first])
    first.state = DeliveryState.ACCEPTING
    incoming.connection_lost(keep=True, again=True, resolve=resolve)
    assert first.again is not resolve
    assert first.state is (DeliveryState.ACCEPTING if resolve else DeliveryState.HERE)
    assert first.batch is (batch if resolve else None)


def test_a_typed_acknowledgement_is_waited_for_under_every_contract() -> None:
    """Promise 5."""
    incoming = Incoming()
    (first,) = presented(incoming, 1)
    first.batch = AckBatch([first], resolved=True)
    first.state = DeliveryState.ACCEPTING
    incoming.connection_lost(keep=True, again=True, resolve=False)
    assert (first.state, first.again) == (DeliveryState.ACCEPTING, False)


def test_an_acknowledgement_that_did_not_count_is_not_taken_for_ours_later() -> None:
    """CONTRACT B12: the message came again, so whoever took it afterwards was somebody else."""
    incoming = Incoming()
    (first,) = presented(incoming, 1)
    first.state, first.stated = DeliveryState.ACCEPTING, True
    incoming.connection_lost(keep=True, again=True, resolve=False)
    incoming.claims_answered(1, [])
    incoming.arrived(None, 7, tag(1), b"second")
    incoming.connection_lost(keep=True, again=True, resolve=False)
    incoming.claims_answered(0, [])
    assert first.state is DeliveryState.ELSEWHERE


def test_what_is_acknowledged_after_all_is_not_presented_again() -> None:
    """CONTRACT B9, B14."""
    incoming = Incoming()
    (first,) = presented(incoming, 1)
    incoming.connection_lost(keep=True, again=True)
    incoming.claims_answered(1, [])
    incoming.arrived(None, 7, tag(1), b"second")
    incoming.taken_back(first)
    assert not incoming.inbox
    assert first.again is False


# -- outcomes ------------------------------------------------------------------------------------------------


def test_a_batch_tells_accepted_from_already_acknowledged_and_elsewhere() -> None:
    """Promise 5."""
    mine, earlier, lost, returned = presented(Incoming(), 1, 2, 3, 4)
    finish(earlier, DeliveryState.ACKNOWLEDGED)
    batch = AckBatch([mine, earlier, lost, returned])
    mine.batch = lost.batch = returned.batch = batch
    finish(mine, DeliveryState.ACKNOWLEDGED)
    finish(lost, DeliveryState.ELSEWHERE)
    finish(returned, DeliveryState.RETURNED)
    assert [batch.outcome(delivery) for delivery in batch.deliveries] == [
        AcknowledgementOutcome.ACCEPTED,
        AcknowledgementOutcome.ALREADY_ACKNOWLEDGED,
        AcknowledgementOutcome.WENT_ELSEWHERE,
        AcknowledgementOutcome.WENT_ELSEWHERE,
    ]
    assert batch.elsewhere() == [lost, returned]


def test_an_outcome_is_committed_rolled_back_or_unknown() -> None:
    """CONTRACT E14."""
    for answer, committed in ((ACCEPTED, True), (Rejected("failed", ""), False), (Rejected(UNKNOWN, ""), None)):
        transaction = Transaction()
        query = Query(b"id", transaction)
        query.answer(answer)
        assert query.answered
        assert query.committed is transaction.committed is committed


def test_what_a_transaction_had_sent_that_turns_out_committed_is_not_sent_again() -> None:
    """CONTRACT E15, E16; promise 3."""
    cut_off = Transaction()
    replayed = Send(2, b"", None, Transaction())
    replayed.repeats = cut_off
    assert not is_stored_already(replayed)
    cut_off.committed = True
    assert is_stored_already(replayed)


def test_the_error_of_a_commit_in_flight_names_the_transaction_and_the_cause() -> None:
    """CONTRACT A21, E12."""
    transaction = Transaction()
    transaction.name = b"name"
    cause = JMSError("lost")
    error = lost_during_commit(transaction, cause)
    assert (error.transaction_id, error.linked) == (b"name", cause)


# -- sends that are released ---------------------------------------------------------------------------------


def test_only_sends_that_somebody_waits_for_are_released() -> None:
    """CONTRACT E11: others are sent again, in order; those of transactions are gone with them."""
    outgoing = Outgoing()
    quiet, awaited, late = (Send(number, b"", None) for number in (1, 2, 4))
    in_transaction = Send(3, b"", None, Transaction())
    awaited.awaited = late.awaited = True
    outgoing.unconfirmed.extend([quiet, awaited, in_transaction])
    outgoing.waiting.append(late)
    assert outgoing.blocked() == [awaited, late]
    outgoing.drop([awaited, late])
    assert outgoing.connection_lost() == 1
    assert list(outgoing.waiting) == [quiet]
