"""What a client remembers over a failover, without sockets."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from legato.client.calls.consumer_work import ConsumerWork
from legato.client.links.deliveries import AckBatch, Delivery, DeliveryState, Incoming, finish
from legato.client.links.session_state import AcknowledgeMode, Outgoing, Send, Transaction
from legato.errors import JMSError


def tag(seq: int) -> bytes:
    return seq.to_bytes(8, "big")


def arrive(incoming: Incoming, *seqs: int) -> list[Delivery | None]:
    return [incoming.arrived(None, 100 * incoming.link + seq, tag(seq), b"") for seq in seqs]


def take(incoming: Incoming, count: int) -> list[Delivery]:
    return [incoming.inbox.popleft() for _ in range(count)]


def waiting(incoming: Incoming) -> list[int]:
    return [delivery.seq for delivery in incoming.inbox]


def send(number: int, transaction: Transaction | None = None) -> Send:
    return Send(number, b"", None, transaction)


def lines_of(function: Callable[[], object], call_at: int = 0, call: Callable[[], object] = int) -> int:
    """Call a function, and at its line of that number something else, as another thread may; returns its lines."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
            if lines == call_at:
                call()
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(outer)
    return lines


class TestOutgoing:
    def test_unconfirmed_sends_go_out_again_first_in_order_with_their_numbers(self) -> None:
        """Promise 1: the broker recognises them by their numbers."""
        outgoing = Outgoing()
        outgoing.unconfirmed.extend(send(number) for number in (3, 4, 5))
        outgoing.waiting.extend(send(number) for number in (6, 7))
        assert outgoing.connection_lost() == 3
        assert [found.number for found in outgoing.waiting] == [3, 4, 5, 6, 7]
        assert not outgoing.unconfirmed

    def test_what_waits_again_is_under_way_at_every_moment(self) -> None:
        """`flush()` asks in another thread: it returned early if it looked at both places while they changed."""

        def lose(ask_at: int = 0) -> tuple[int, list[bool]]:
            outgoing = Outgoing()
            outgoing.unconfirmed.extend(send(number) for number in (1, 2))
            answers: list[bool] = []
            return lines_of(outgoing.connection_lost, ask_at, lambda: answers.append(outgoing.under_way)), answers

        lines, _ = lose()
        assert [lose(line)[1] for line in range(1, lines + 1)] == [[True]] * lines

    def test_sends_that_are_not_sent_again_leave_when_they_have_failed(self) -> None:
        """CONTRACT E11."""
        outgoing = Outgoing()
        held, waited, last = send(1, Transaction()), send(2), send(3)
        waited.awaited = last.awaited = True
        outgoing.unconfirmed.extend([held, waited])
        outgoing.waiting.append(last)
        assert outgoing.blocked() == [waited, last]
        assert outgoing.under_way
        outgoing.drop([waited, last])
        assert ([*outgoing.unconfirmed], [*outgoing.waiting]) == ([held], [])

    def test_sends_are_done_in_their_order_whatever_the_order_of_their_outcomes(self) -> None:
        """Jakarta Messaging 7.3.8."""
        outgoing = Outgoing()
        one, two, three = sends = [send(number) for number in (1, 2, 3)]
        outgoing.unconfirmed.extend(sends)
        refused = JMSError("refused")
        assert outgoing.decided([three], None) == []
        assert outgoing.decided([one], refused) == [one]
        outgoing.forget([one])
        assert outgoing.decided([two], None) == [two, three]
        assert [found.error for found in sends] == [refused, None, None]

    def test_sends_of_a_transaction_are_not_sent_again_by_themselves(self) -> None:
        """CONTRACT A9: a failover disposes them."""
        outgoing = Outgoing()
        outgoing.unconfirmed.extend([send(1, Transaction()), send(2)])
        assert outgoing.connection_lost() == 1
        assert [found.number for found in outgoing.waiting] == [2]


class TestIncoming:
    def test_what_was_not_presented_is_forgotten_and_comes_again_as_new(self) -> None:
        incoming = Incoming()
        arrive(incoming, 1, 2, 3)
        take(incoming, 1)
        assert [delivery.seq for delivery in incoming.connection_lost(keep=True)] == [1]
        assert incoming.held() == [1]
        assert waiting(incoming) == []
        incoming.claims_answered(1, ())
        assert [found is not None for found in arrive(incoming, 1, 2, 3)] == [True, False, False]
        assert waiting(incoming) == [2, 3]

    @pytest.mark.parametrize("count", [1, 2])
    def test_the_application_may_take_messages_at_any_line_while_the_others_are_forgotten(self, count: int) -> None:
        """Jakarta Messaging 6.2.10: those that come again are later than those that it took."""

        def lose(take_at: int = 0) -> tuple[int, Incoming, list[Delivery]]:
            incoming = Incoming()
            arrive(incoming, *range(1, 7))
            taken: list[Delivery] = []
            lines = lines_of(
                lambda: incoming.connection_lost(keep=True),
                take_at,
                lambda: taken.extend(take(incoming, min(count, len(incoming.inbox)))),
            )
            return lines, incoming, taken

        lines, _, _ = lose()
        taken_at_all = 0
        for line in range(1, lines + 1):
            _, incoming, taken = lose(line)
            taken_at_all += len(taken)
            assert [delivery.seq for delivery in taken] == [*range(1, 1 + len(taken))], line
            assert incoming.held() == [delivery.seq for delivery in taken]
            incoming.claims_answered(len(taken), ())
            arrive(incoming, *range(1, 7))
            assert waiting(incoming) == [*range(1 + len(taken), 7)]
        assert taken_at_all > count

    def test_a_held_message_that_comes_again_keeps_its_object_and_gets_a_new_handle(self) -> None:
        incoming = Incoming()
        arrive(incoming, 7)
        (delivery,) = take(incoming, 1)
        incoming.connection_lost(keep=True)
        incoming.claims_answered(1, ())
        assert arrive(incoming, 7) == [delivery]
        assert (delivery.link, delivery.handle) == (1, 107)
        assert delivery.state is DeliveryState.HERE

    def test_what_is_gone_and_was_never_acknowledged_to_a_broker_went_elsewhere(self) -> None:
        """Promise 5: another receiver, or the dead letters, had it before the takeover."""
        incoming = Incoming()
        arrive(incoming, 1)
        (gone,) = take(incoming, 1)
        incoming.connection_lost(keep=True)
        assert incoming.claims_answered(0, []) == [gone]
        assert gone.state is DeliveryState.ELSEWHERE

    def test_a_claim_is_decided_by_what_the_broker_says_and_sends(self) -> None:
        """Promise 5: elsewhere, acknowledged before the failover, or still ours."""
        incoming = Incoming()
        arrive(incoming, 1, 2, 3)
        elsewhere, acknowledged, ours = take(incoming, 3)
        acknowledged.stated = True
        incoming.connection_lost(keep=True)
        assert incoming.claims_answered(1, [1]) == [elsewhere]
        arrive(incoming, 3)
        assert incoming.claims_came() == [acknowledged]
        states = [delivery.state for delivery in (elsewhere, acknowledged, ours)]
        assert states == [DeliveryState.ELSEWHERE, DeliveryState.ACKNOWLEDGED, DeliveryState.HERE]
        assert incoming.held() == [3]

    def test_when_none_of_the_claims_come_all_are_decided_at_once(self) -> None:
        incoming = Incoming()
        arrive(incoming, 1, 2)
        deliveries = take(incoming, 2)
        incoming.connection_lost(keep=True)
        assert incoming.claims_answered(0, ()) == deliveries
        assert incoming.held() == []

    def test_a_second_loss_before_the_claims_came_loses_none(self) -> None:
        incoming = Incoming()
        arrive(incoming, 1, 2)
        take(incoming, 2)
        incoming.connection_lost(keep=True)
        incoming.claims_answered(2, ())
        arrive(incoming, 1)
        incoming.connection_lost(keep=True)
        assert incoming.held() == [1, 2]

    def test_a_broker_that_knows_no_claims_sends_everything_as_new(self) -> None:
        incoming = Incoming()
        arrive(incoming, 1)
        (delivery,) = take(incoming, 1)
        incoming.connection_lost(keep=True)
        incoming.claims_answered(None, ())
        assert delivery.state is DeliveryState.RETURNED
        assert arrive(incoming, 1) == [None]

    def test_without_claims_all_that_the_application_has_is_given_up(self) -> None:
        """CONTRACT A9, C5: transacted and DUPS_OK sessions get it again."""
        incoming = Incoming()
        arrive(incoming, 1, 2)
        (delivery,) = take(incoming, 1)
        assert incoming.connection_lost(keep=False) == [delivery]
        assert delivery.state is DeliveryState.RETURNED
        assert arrive(incoming, 1) == [None]

    def test_only_so_many_claims_are_made_as_fit_a_frame(self) -> None:
        incoming = Incoming()
        arrive(incoming, 1, 2, 3)
        deliveries = take(incoming, 3)
        incoming.connection_lost(keep=True)
        incoming.forget_beyond(2)
        assert incoming.held() == [1, 2]
        assert deliveries[2].state is DeliveryState.RETURNED

    def test_a_presettled_message_is_never_claimed(self) -> None:
        incoming = Incoming()
        incoming.arrived(None, 1, b"", b"", settled=True)
        take(incoming, 1)
        assert incoming.connection_lost(keep=True) == []


class TestAckBatch:
    def test_it_is_done_when_every_delivery_has_an_end(self) -> None:
        deliveries = [Delivery(None, 0, n, tag(n), b"") for n in range(3)]
        batch = AckBatch(deliveries)
        for delivery in deliveries:
            delivery.batch = batch
        finish(deliveries[0], DeliveryState.ACKNOWLEDGED)
        finish(deliveries[1], DeliveryState.ELSEWHERE)
        finish(deliveries[1], DeliveryState.ACKNOWLEDGED)
        assert batch.open == 1
        finish(deliveries[2], DeliveryState.ACKNOWLEDGED)
        assert batch.open == 0
        assert batch.elsewhere() == [deliveries[1]]


class TestTransaction:
    def test_it_does_work_once_it_sent_or_received(self) -> None:
        """CONTRACT B17."""
        sending, receiving, idle = Transaction(), Transaction(), Transaction()
        producer: Any = object()
        sending.sends.append((producer, send(1)))
        receiving.took = True
        assert (sending.did_work, receiving.did_work, idle.did_work) == (True, True, False)

    def test_a_doomed_one_says_why(self) -> None:
        transaction = Transaction()
        failure = JMSError("gone")
        transaction.doom(failure)
        assert transaction.doomed
        assert transaction.failure is failure


class TestTakingBack:
    def test_what_a_loss_returns_at_any_line_of_taking_back_is_not_the_next_message(self) -> None:
        """Jakarta Messaging 6.2.10: a transaction that begins after a loss has nothing that comes again by itself."""

        def take_back(lose_at: int = 0) -> tuple[int, ConsumerWork]:
            incoming = Incoming()
            arrive(incoming, 1, 2)
            taken = take(incoming, 1)[0]
            end = SimpleNamespace(
                source=SimpleNamespace(destination=None),
                incoming=incoming,
                prefetch=1,
                handing=taken,
                accepted=deque(),
                presented=deque([taken]),
            )
            acknowledgements = SimpleNamespace(
                mode=AcknowledgeMode.SESSION_TRANSACTED, unacknowledged={}, acknowledge_needlessly=None
            )
            session = SimpleNamespace(
                _channel=SimpleNamespace(transport=None),
                _guard=SimpleNamespace(turn=None),
                _undertakings=None,
                _acknowledgements=acknowledgements,
            )
            consumer = ConsumerWork(cast(Any, session), cast(Any, end), None)
            lines = lines_of(consumer._take_back, lose_at, lambda: incoming.connection_lost(keep=False))
            return lines, consumer

        lines, consumer = take_back()
        first = consumer._first()
        assert first is not None
        assert first.seq == 1
        for line in range(1, lines + 1):
            _, consumer = take_back(line)
            assert consumer._first() is None, line
            assert not consumer._inbox
