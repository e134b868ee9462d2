"""The context of a stage's function: state, flow, database, and the calls that it may make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from legato.errors import FlowError, IllegalCallFlowError, RefuseMessageError
from legato.flows.model.calls import Calls
from legato.flows.model.definitions import Endpoint
from legato.flows.model.envelope import Compensation, Envelope, Outgoing, Saved
from legato.flows.model.initiation import Initiation, joined_trace_id
from legato.flows.model.joins import Request, begin_join
from legato.flows.model.payloads import to_json
from legato.flows.model.stash import make_stash
from legato.quoting import quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection as DatabaseConnection

S = TypeVar("S")
AfterCommit = Callable[[], object]


class Context(Generic[S]):
    """One run of a stage. What it calls for is sent when, and only if, the stage's transaction commits (CONTRACT D1).

    Attributes:
        state: the endpoint's own memory; what is changed here is found by its next stage.
        delivery_count: which attempt at this message this is, from 1.
    """

    def __init__(
        self,
        calls: Calls,
        endpoint: Endpoint,
        state: S,
        *,
        delivery_count: int = 1,
        database: Callable[[], DatabaseConnection] | None = None,
    ) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self._calls = calls
        self._endpoint = endpoint
        self._database = database
        self._direct: Any = None
        self._after_commit: list[AfterCommit] = []

    def __repr__(self) -> str:
        return f"<Context of {self.stage_id}, flow {quoted(self.trace_id)}, attempt {self.delivery_count}>"

    # -- whose flow it is

    @property
    def envelope(self) -> Envelope:
        """The message as it came, whole."""
        return self._calls.incoming

    @property
    def trace_id(self) -> str:
        """Trace id that the initiator gave the flow."""
        return self.envelope.trace_id

    @property
    def flow_id(self) -> str:
        """The flow's own id."""
        return self.envelope.flow_id

    @property
    def message_id(self) -> str:
        """This message's id, the same at each attempt: fit to be a key for work that must not be done twice."""
        return self.envelope.message_id

    @property
    def stage_id(self) -> str:
        """The stage that runs."""
        return self._calls.place.stage_id

    @property
    def redelivered(self) -> bool:
        """Whether somebody may have tried before."""
        return self.delivery_count > 1

    @property
    def deadline_us(self) -> int:
        """Deadline of the flow, microseconds since 1970; 0 for none."""
        return self._calls.deadline_us

    @property
    def sideloads(self) -> dict[str, bytes]:
        """Bytes that came beside the data."""
        return self.envelope.sideloads

    @property
    def properties(self) -> dict[str, str]:
        """Texts that travel with the flow."""
        return dict(self._calls.luggage.properties)

    @property
    def outgoing(self) -> list[Outgoing]:
        """Messages of the calls made so far."""
        return self._calls.outgoing

    # -- its database

    @property
    def database(self) -> DatabaseConnection:
        """The stage's database transaction, as an SQLAlchemy connection; it commits and rolls back with the stage.

        Raises:
            FlowError: the service has no database, or the stage's transaction is `messaging`.
        """
        if self._database is None:
            raise FlowError(
                f"{self.stage_id} has no database: give the service one (`Flows(..., database=...)`) and the stage a "
                "transaction of `best-effort` or `inbox-outbox`."
            )
        return self._database()

    @property
    def dbapi_connection(self) -> Any:
        """The same transaction as a plain DB-API connection; do not commit or close it."""
        return self.database.connection.driver_connection

    # -- calls

    def request(self, to: str, data: Any, *, delay_ms: int = 0) -> None:
        """Ask an endpoint; its reply goes to the next stage. May be called several times: each reply comes by itself.

        Raises:
            IllegalCallFlowError: nothing follows this stage, or another kind of call was made (CONTRACT D23).
        """
        self._calls.request(to, to_json(data), self._saved(), delay_ms=delay_ms)

    def request_all(
        self, requests: Mapping[str, Request], *, timeout_s: float | None = None, partial: bool = False
    ) -> None:
        """Ask several endpoints at once; the next stage gets all replies together, as `Answers`, whoever may die.

        Args:
            requests: by a key that the next stage finds the reply under.
            timeout_s: seconds after which who has not answered is not waited for; None to wait for ever.
            partial: whether the next stage takes the answers that came; else the flow fails if one does not.

        Raises:
            IllegalCallFlowError: nothing follows this stage, or another kind of call was made.
        """
        begin_join(
            self._calls,
            {key: (request.to, to_json(request.data)) for key, request in requests.items()},
            self._saved(),
            timeout_ms=0 if timeout_s is None else max(1, round(timeout_s * 1000)),
            partial=partial,
        )

    def reply(self, data: Any) -> None:
        """Answer whoever asked, before the last stage; nothing is sent if nobody did.

        Raises:
            IllegalCallFlowError: this is a terminator, or another call was made.
        """
        self._calls.reply(to_json(data))

    def next(self, data: Any, *, delay_ms: int = 0) -> None:
        """Go on in the next stage, in a transaction of its own; with a delay this is a timer that survives everything.

        Raises:
            IllegalCallFlowError: nothing follows this stage, or another call was made.
        """
        self._calls.next(to_json(data), self._saved(), delay_ms=delay_ms)

    def next_direct(self, data: Any) -> None:
        """Run the next stage at once, in this transaction and without a message.

        Raises:
            IllegalCallFlowError: nothing follows this stage, or another call was made.
        """
        self._calls.next_direct()
        self._direct = data

    def goto(self, to: str, data: Any, *, state: Any = None, delay_ms: int = 0) -> None:
        """Have another endpoint go on in this one's place, with the same who wait for a reply.

        Args:
            state: what that endpoint finds as its state; None for a new one.

        Raises:
            IllegalCallFlowError: another call was made.
        """
        saved = Saved() if state is None else Saved(to_json(state))
        self._calls.goto(to, to_json(data), saved, delay_ms=delay_ms)

    def send_message(self, queue: str, data: Any) -> None:
        """Send `data` as the JSON of a plain message to a queue that other programs read, besides any other call.

        It is sent with the stage's commit as all calls are; its correlation id is the flow's trace id.
        """
        self._calls.send_out(queue, to_json(data))

    def initiate(self, trace_id: str) -> Initiation:
        """Begin other flows in this stage's transaction: they start if it commits (CONTRACT D24).

        Args:
            trace_id: comes after this flow's own and `|`; with `!` before it, it stands alone.
        """
        initiation = Initiation(
            joined_trace_id(self.trace_id, trace_id),
            sender=self.stage_id,
            now_us=self._calls.now_us,
            new_id=self._calls.next_message_id,
            interactive=self.envelope.interactive,
            persistent=self.envelope.persistent,
        )
        initiation.trace_context = dict(self._calls.luggage.trace_context)
        initiation.outgoing = self._calls.outgoing
        return initiation

    def stash(self) -> bytes:
        """This flow as it stands here, to be kept anywhere and continued by `Flows.unstash` (CONTRACT D23).

        Raises:
            IllegalCallFlowError: this is the last stage: what it returns is the reply.
        """
        place = self._calls.place
        if place.next_id is None and not self._endpoint.terminator and self._endpoint.stages[-1].id == place.stage_id:
            raise IllegalCallFlowError(
                f"{self.stage_id} is a last stage: it replies now, so there is nothing to stash."
            )
        return make_stash(self.envelope, place, self._saved())

    def refuse(self, reason: str) -> NoReturn:
        """Send the message to the dead letters, without another attempt (CONTRACT D21).

        Raises:
            RefuseMessageError: always.
        """
        raise RefuseMessageError(reason)

    # -- what goes along

    def add_sideload(self, name: str, data: bytes) -> None:
        """Send bytes beside the data of this run's calls that follow."""
        self._calls.luggage.sideloads[name] = data

    def set_property(self, name: str, text: str) -> None:
        """Have a text travel with the flow from the calls that follow on."""
        self._calls.luggage.properties[name] = text

    def set_deadline(self, deadline_us: int) -> None:
        """Have the flow fail if it is still on its way at that time, microseconds since 1970."""
        self._calls.deadline_us = deadline_us

    def compensate_with(self, endpoint: str, data: Any) -> None:
        """Should this flow fail later, have `endpoint` undo what this stage did; the latest is asked first."""
        self._calls.compensations = (*self._calls.compensations, Compensation(endpoint, to_json(data)))

    def after_commit(self, action: AfterCommit) -> None:
        """Have something done once the stage is committed; its failure is logged, nothing else (CONTRACT D23).

        At most once: not if the service dies in between, nor if the outbox finishes what a lost broker left undone.
        """
        self._after_commit.append(action)

    def _saved(self) -> Saved:
        if self._endpoint.state is None:
            return Saved()
        return Saved(to_json(self.state), self._endpoint.state_version)
