"""Initiations of flows: the messages that an initiator sends, and the continuation of a stashed flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from legato.errors import FlowError
from legato.flows.model.calls import first_envelope
from legato.flows.model.envelope import Call, Frame, Outgoing, Reach, Saved
from legato.flows.model.payloads import to_json
from legato.quoting import quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection as DatabaseConnection

IdMaker = Callable[[], str]


class Initiation:
    """Collects the messages that begin flows; all of them are sent, or none (CONTRACT D7, D24).

    Args:
        trace_id: what people will call the flows; mandatory.
        sender: who initiates, for traces.
        now_us: microseconds since 1970.
        new_id: makes an id that no other call has made or will make.
        interactive: whether a person waits; flows stay so to their end.
        persistent: False for flows that may be lost with their broker, such as reads.
        deadline_us: when the flows are of no use any more, microseconds since 1970; 0 for never.
        time_to_live_ms: after which a first message that nobody took expires; 0 for never.
    """

    def __init__(
        self,
        trace_id: str,
        *,
        sender: str,
        now_us: int,
        new_id: IdMaker,
        interactive: bool = False,
        persistent: bool = True,
        deadline_us: int = 0,
        time_to_live_ms: int = 0,
    ) -> None:
        self.trace_id = trace_id
        self.sender = sender
        self.outgoing: list[Outgoing] = []
        self.trace_context: dict[str, str] = {}
        self._now_us = now_us
        self._new_id = new_id
        self._interactive = interactive
        self._persistent = persistent
        self._deadline_us = deadline_us
        self._time_to_live_ms = time_to_live_ms
        self._sideloads: dict[str, bytes] = {}
        self._properties: dict[str, str] = {}
        self._database: Callable[[], DatabaseConnection] | None = None

    def __repr__(self) -> str:
        return f"<Initiation of {quoted(self.trace_id)}>"

    @property
    def database(self) -> DatabaseConnection:
        """The initiation's own database transaction; it commits before the messages do (CONTRACT D7).

        Raises:
            FlowError: the initiation has none.
        """
        if self._database is None:
            raise FlowError("This initiation has no database transaction: begin it with `initiate(transaction=...)`.")
        return self._database()

    def with_database(self, database: Callable[[], DatabaseConnection]) -> None:
        """Give it a database transaction, which begins when it is asked for."""
        self._database = database

    def add_sideload(self, name: str, data: bytes) -> None:
        """Send bytes beside the data of the calls that follow."""
        self._sideloads[name] = data

    def set_property(self, name: str, text: str) -> None:
        """Have a text travel with all messages of the flows whose calls follow."""
        self._properties[name] = text

    def send(self, to: str, data: Any, *, state: Any = None, delay_ms: int = 0, trace_id: str = "") -> str:
        """Call `to` and wait for nothing; returns the id of the flow.

        Args:
            state: what the endpoint's first stage finds as its state, None for a new one.
            delay_ms: before which it is not delivered.
            trace_id: of this flow, if another than the initiation's.
        """
        return self.begin(Call.SEND, to, data, (), state=state, delay_ms=delay_ms, trace_id=trace_id)

    def publish(self, to: str, data: Any) -> str:
        """Call all subscription terminators of that name; returns the id of the flow."""
        return self.begin(Call.PUBLISH, to, data, (), reach=Reach.TOPIC)

    def request(
        self,
        to: str,
        data: Any,
        *,
        reply_to: str,
        state: Any = None,
        state_version: int = 1,
        subscription: bool = False,
        delay_ms: int = 0,
    ) -> str:
        """Call `to` and have its reply sent to a terminator; returns the id of the flow.

        Args:
            reply_to: the terminator's name.
            state: what the terminator finds as its state.
            state_version: of that state's class.
            subscription: whether `reply_to` is a subscription terminator (CONTRACT D24, `replyToSubscription`).
        """
        saved = Saved() if state is None else Saved(to_json(state), state_version)
        reach = Reach.TOPIC if subscription else Reach.STAGE
        return self.begin(Call.REQUEST, to, data, (Frame(reply_to, saved, reach),), delay_ms=delay_ms)

    def begin(
        self,
        call: Call,
        to: str,
        data: Any,
        stack: tuple[Frame, ...],
        *,
        state: Any = None,
        reach: Reach = Reach.STAGE,
        delay_ms: int = 0,
        trace_id: str = "",
    ) -> str:
        """Begin a flow in one of the ways above."""
        flow_id = self._new_id()
        envelope = first_envelope(
            message_id=self._new_id(),
            flow_id=flow_id,
            trace_id=trace_id or self.trace_id,
            sender=self.sender,
            to=to,
            data=to_json(data),
            now_us=self._now_us,
            call=call,
            stack=stack,
            state=Saved() if state is None else Saved(to_json(state)),
            deadline_us=self._deadline_us,
            interactive=self._interactive,
            persistent=self._persistent,
            sideloads=self._sideloads,
            properties=self._properties,
            trace_context=self.trace_context,
        )
        self.outgoing.append(Outgoing(envelope, reach, delay_ms=delay_ms, time_to_live_ms=self._time_to_live_ms))
        return flow_id


def joined_trace_id(parent: str, trace_id: str) -> str:
    """The trace id of a flow that a stage initiates: the parent's before its own, unless that begins with `!`."""
    return trace_id[1:] if trace_id.startswith("!") else f"{parent}|{trace_id}"
