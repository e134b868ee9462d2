"""Steps of a session: it is made of parts, sees to what was interrupted, and closes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

from legato.client.calls.browser_steps import BrowserSteps
from legato.client.calls.consumer_steps import ConsumerSteps
from legato.client.calls.described import counted, described
from legato.client.calls.leaving import leaving
from legato.client.calls.other_groups import SessionGroups
from legato.client.calls.patience import Losses, Patience
from legato.client.calls.ports import ConnectionPort, SessionPort
from legato.client.calls.producer_steps import ProducerSteps
from legato.client.calls.session_acknowledgements import SessionAcknowledgements
from legato.client.calls.session_factory import SessionFactory
from legato.client.calls.session_guard import SessionGuard
from legato.client.calls.session_listeners import Dispatcher, SessionListeners
from legato.client.calls.session_members import SessionMembers
from legato.client.calls.session_messages import SessionMessages
from legato.client.calls.session_transactions import SessionTransactions
from legato.client.calls.undertakings import Undertakings
from legato.client.links.channel import Channel
from legato.client.links.session_state import AcknowledgeMode, Transaction
from legato.client.steps import Steps, Wait

_Producer = TypeVar("_Producer", bound=ProducerSteps)
_Consumer = TypeVar("_Consumer", bound=ConsumerSteps)
_Browser = TypeVar("_Browser", bound=BrowserSteps)


class SessionSteps(Generic[_Producer, _Consumer, _Browser]):
    """What one thread, or one task, at a time works with (Jakarta Messaging 6.2); anyone may call `close()`.

    A failover does not end a session: its producers, consumers and listeners go on. In a transacted session it dooms a
    transaction that has done work: until its end that transaction absorbs what is sent and received, `commit()` then
    raises `TransactionRolledBackError` once, and what it had received comes again, flagged (CONTRACT B18, E13).
    """

    _producer_type: type[_Producer]
    _consumer_type: type[_Consumer]
    _browser_type: type[_Browser]

    def __init__(
        self,
        connection: ConnectionPort,
        name: str,
        acknowledge_mode: AcknowledgeMode,
        above: SessionPort | None = None,
    ) -> None:
        self.acknowledge_mode = acknowledge_mode
        self._connection = connection
        world = connection._world
        options = connection._options
        first = Transaction() if acknowledge_mode is AcknowledgeMode.SESSION_TRANSACTED else None
        # What is below a session is used in its turn, and wakes who waits for it.
        gate = None if above is None else above._channel.gate
        self._channel = Channel(
            connection._transport, name, acknowledge_mode, first, options.contract, owner=self, gate=gate
        )
        self._guard = SessionGuard(self._channel, world.turn() if above is None else above._guard.turn)
        self._groups = SessionGroups(self, above)
        self._undertakings = Undertakings(self._guard)
        self._members: SessionMembers[_Consumer] = SessionMembers(self._guard)
        self._listeners = SessionListeners(
            self._members,
            self._channel.gate,
            lambda: world.dispatcher(
                self,
                f"legato session {name}",
                redeliver_on_error=options.redelivers_on_listener_error,
                backoff_s=options.listener_backoff_s,
            ),
        )
        self._transactions = SessionTransactions(
            self._guard,
            self._undertakings,
            first,
            tell_duplicates=self._members.tell_duplicates,
            open_ids=connection._open_transactions,
            ask_groups=self._groups.outcome,
            decide_at_once=(
                (lambda delivery, outcome: self._acknowledgements.decide(delivery, outcome))
                if acknowledge_mode is AcknowledgeMode.INDIVIDUAL
                else None
            ),
        )
        self._acknowledgements = SessionAcknowledgements(
            self._guard,
            self._undertakings,
            self._transactions,
            acknowledge_mode,
            run=world.run,
            held_by_listener=self._listeners.held,
        )
        self._messages = SessionMessages(self._guard)
        self._factory: SessionFactory[_Producer, _Consumer, _Browser] = SessionFactory(
            self, name, options.prefetch, self._producer_type, self._consumer_type, self._browser_type
        )
        self._groups.join(above)
        connection._transport.add(self._channel)

    def __repr__(self) -> str:
        members = self._members
        listening = sum(consumer.message_listener is not None for consumer in list(members.consumers))
        return described(
            self,
            self.acknowledge_mode.name,
            "closed" if self._guard.closed else "",
            counted(len(members.producers), "producer"),
            counted(len(members.consumers), "consumer"),
            counted(listening, "listener"),
        )

    @property
    def transacted(self) -> bool:
        """Whether the session is transacted."""
        return self._transactions.current is not None

    @property
    def transaction_doomed(self) -> bool:
        """Whether a failover has made sure already that `commit()` will raise (CONTRACT B18, D4).

        Raises:
            IllegalStateError: the session is not transacted, or closed.
            JMSError: the session or its connection is gone for good.
        """
        return self._transactions.doomed

    # -- what was interrupted ----------------------------------------------------------------------------

    def _interrupted(self, interruption: BaseException) -> None:
        """A call was interrupted at any line: what it had taken goes back, what it had begun goes on.

        May be called again. Whoever else uses the session has not been interrupted.
        """
        guard = self._guard
        if not guard.turn.acquire(False):
            return
        if self._undertakings.told is not None:
            self._undertakings.told.heard_instead(interruption)
        channel = self._channel
        post = channel.transport.post
        self._members.take_back()
        self._undertakings.ask_again()
        self._members.unmake()
        if guard.closed:
            post(channel.close)
        guard.blocked = False
        post(channel.look_again)
        channel.transport.wake()
        guard.turn.release()
        for below in self._groups:
            below._guard.closed = below._guard.closed or guard.closed
            below._interrupted(interruption)

    # -- the end -----------------------------------------------------------------------------------------

    def _check_not_in_listener(self, what: str) -> None:
        self._listeners.check_not_in_listener(what)
        self._guard.check_not_completing(what)

    def _close(self) -> Steps[None]:
        """Roll back or give back what is open, close producers and consumers, then the session. May be called again.

        Waits for the listener that runs now, and for completion listeners (Jakarta Messaging 6.2.15). What the broker
        has not confirmed is waited for as long as the connection's option `close_timeout_s`; without a connection
        there is nothing else to wait for.

        Raises:
            IllegalStateError: one of the session's own listeners asks, which would wait for itself (8.8, 7.3.6).
            JMSError: so many messages were not confirmed by then, and are given up (code `TIMEOUT`); the session is
                closed.
        """
        patience = Patience("session", self._connection._options.close_timeout_s, self._channel.transport)
        yield from self._close_within(patience)
        patience.check()

    def _close_within(self, patience: Patience) -> Steps[None]:
        """Close, and tell `patience` what was given up."""
        if self._channel.transport.disowned:
            return
        family = self._family
        for each in family:
            each._check_not_in_listener("close")
        if all(each._is_ended for each in family):
            return
        with contextlib.ExitStack() as held:
            for each in family:
                held.enter_context(each._guard.held())
            yield from self._close_held(patience)

    @property
    def _family(self) -> list[SessionSteps[_Producer, _Consumer, _Browser]]:
        """The sessions below, then this one: all have one turn, so they end together."""
        return [*self._groups, self]

    @property
    def _is_ended(self) -> bool:
        return self._channel.closed and not self._members.consumers and not self._members.producers

    def _close_held(self, patience: Patience) -> Steps[None]:
        # Called again all of it is done again, which changes nothing: the first call may have been interrupted.
        guard = self._guard
        family = self._family
        for each in family:
            each._guard.closed = True
        losses = [Losses(each._channel) for each in family]
        try:
            yield from self._await_others(patience)
        except BaseException:
            self._close_unawaited()
            raise
        try:
            for each in family:
                yield from each._close_all(patience)
            for lost in losses:
                lost.tell(patience)
        except BaseException:
            # Nobody waits for it any more, but it ends.
            for each in family:
                each._channel.transport.post(each._channel.close)
            raise
        finally:
            guard.turn.release()

    def _await_others(self, patience: Patience) -> Steps[None]:
        """Have the turn, once no listener runs and no other call."""
        turn = self._guard.turn
        family = self._family
        # Calls that wait for a broker that is not there, with nothing of theirs on its way, end now.
        self._channel.gate.open()
        for each in family:
            each._connection._wake_others()
        for dispatcher in self._dispatchers:
            dispatcher.at_end = None  # This close is waited for again.
            dispatcher.stop()
        for each in family:
            listening = each._listeners.dispatcher
            if listening is not None:
                yield from self._patiently(
                    lambda listening=listening: listening.ended,  # type: ignore[misc]
                    patience,
                    each._channel,
                    for_listener=True,
                )
        for each in family:
            each._members.close_consumers()
        self._channel.gate.open()
        # Another thread's receive() returns now; its commit() or send() first comes to its end.
        if not (yield from turn.awaited(patience.for_sends_s)):
            self._give_up_sends(patience)
            while not (yield from turn.awaited(patience.for_all_s)):
                self._give_up(patience)

    @property
    def _dispatchers(self) -> list[Dispatcher]:
        found = [each._listeners.dispatcher for each in self._family]
        return [dispatcher for dispatcher in found if dispatcher is not None]

    def _close_unawaited(self) -> None:
        """Nobody waits for it any more, but it ends: after the listener that runs."""
        dispatchers = self._dispatchers
        for dispatcher in dispatchers:
            dispatcher.at_end = self._end_unawaited
            dispatcher.stop()
        # In this order: a dispatcher that ends meanwhile has been told, or has ended.
        if all(dispatcher.ended for dispatcher in dispatchers):
            self._end_unawaited()

    def _end_unawaited(self) -> None:
        """Close the links, unless another call uses the session yet. May be called again."""
        turn = self._guard.turn
        if not turn.acquire(False):
            return
        try:
            for each in self._family:
                each._members.close_consumers()
                for consumer in list(each._members.consumers):
                    each._members.begin_closing(consumer)
                each._channel.transport.post(each._channel.close)
        finally:
            turn.release()

    def _close_all(self, patience: Patience) -> Steps[None]:
        channel = self._channel
        undertaking = self._undertakings.current
        if undertaking is not None and channel.error is None:
            undertaking.ask()
            yield from self._patiently(lambda: undertaking.over() or channel.closed, patience)
            if undertaking.over():
                undertaking.conclude()
        transaction = self._transactions.current
        if channel.coordinator is not None and transaction is not None and channel.error is None:
            channel.transport.post(channel.coordinator.end, transaction, False, Transaction())
            # An interrupted close may have ended the session, and the transaction with it.
            yield from self._patiently(lambda: transaction.outcome is not None or channel.closed, patience)
        channel.transport.post(channel.close)
        yield from self._patiently(lambda: channel.closed, patience)
        yield from self._guard.wait_for_completions()
        # In this order: without members it counts as closed.
        self._connection._forget_session(self)
        self._members.forget_all()

    def _leave(self, error: BaseException | None) -> Steps[None]:
        return leaving(self._close(), self._channel.transport, error)

    def _patiently(
        self,
        ready: Callable[[], object],
        patience: Patience,
        channel: Channel | None = None,
        *,
        for_listener: bool = False,
    ) -> Steps[None]:
        """Wait for something that closing needs; what the broker does not confirm for too long is given up.

        Args:
            channel: of the session of which it is waited for, if that is one below.
        """
        waited = self._channel if channel is None else channel
        transport = waited.transport
        if transport.is_current_thread:
            return
        transport.hurry()

        def over() -> object:
            return ready() or waited.error or transport.error

        if not (yield Wait(waited.gate, over, patience.for_sends_s, for_listener=for_listener)):
            self._give_up_sends(patience)
            while not (yield Wait(waited.gate, over, patience.for_all_s, for_listener=for_listener)):
                self._give_up(patience)

    def _give_up_sends(self, patience: Patience) -> None:
        for each in self._family:
            channel = each._channel
            channel.transport.post(channel.give_up_sends, patience.error_of_send())
            channel.transport.hurry()
        # Where there is no broker nobody will confirm anything else either.
        self._give_up(patience, only_away=True)

    def _give_up(self, patience: Patience, *, only_away: bool = False) -> None:
        """Whatever else the broker has not answered: who is blocked in a call on the session hears so.

        Args:
            only_away: only of brokers to which there is no connection.
        """
        family = self._family
        listens = any(not dispatcher.ended for dispatcher in self._dispatchers)
        if listens and not any(each._guard.blocked for each in family):
            return  # A listener of the application takes its time (Jakarta Messaging 6.2.15).
        for each in family:
            channel = each._channel
            if channel.transport.wire is None or not only_away:
                channel.transport.post(channel.give_up, patience.error_of_call())
                channel.transport.hurry()
