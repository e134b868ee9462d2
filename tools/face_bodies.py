"""Hand-written parts of the client's public classes; `make_faces` inserts them.

`send()` and `receive()` are here for speed: without their steps a message costs less. The others differ between threads
and asyncio.
"""

from __future__ import annotations

SEND = """\
# `_send` without its steps, and its turn without calls: most sends wait for nothing, and pay for nothing else.
turn: ThreadTurn = self._turn  # type: ignore[assignment]
holder = turn.holder
thread = get_ident()
try:
    if holder.setdefault("thread", thread) != thread:
        raise self._guard.misused()
    try:
        route = self._route
        if (
            route is None
            or destination is not None
            or self._undertakings.current is not None
            or len(route.end.outgoing.waiting) >= self._window
        ):
            route = drive(self._ready_route(destination))
        send = self._submit(
            route,
            message,
            delivery_mode,
            priority,
            time_to_live_ms,
            delivery_delay_ms,
            completion_listener,
            duplicate_id,
        )
        if send.awaited:
            drive(self._confirmed(send))
    finally:
        if turn.keeper != thread:
            holder.pop("thread", None)
    if turn.bells:
        turn.gate.open()
    if route.end.duplicates:
        drive(self._tell_duplicates())
except BaseException as interruption:
    mend(self, interruption)
    if turn.bells:
        turn.gate.open()
    raise
"""

RECEIVE = """\
# `_receive` without its steps, and its turn without calls: a message that is here pays for nothing else.
turn: ThreadTurn = self._turn  # type: ignore[assignment]
holder = turn.holder
thread = get_ident()
message: Message | None
try:
    if kind is not None:
        kind, timeout_s = expectation(kind, timeout_s)
        if kind is not None:
            end = self._end
            message = drive(self._getting(kind, timeout_s))
            end.handing = None; return message  # fmt: skip  # noqa: E702
    if holder.setdefault("thread", thread) != thread:
        raise self._guard.misused()
    try:
        if self._listener is not None or self._undertakings.current is not None or (message := self._take()) is None:
            message = drive(self._receiving(timeout_s))
    finally:
        if turn.keeper != thread:
            holder.pop("thread", None)
    if turn.bells:
        turn.gate.open()
    # One step: no signal handler runs between its halves.
    self._end.handing = None; return message  # fmt: skip  # noqa: E702
except BaseException as interruption:
    mend(self, interruption)
    if turn.bells:
        turn.gate.open()
    raise
"""

RECEIVE_OVERLOADS = """\
@overload
def receive(self, *, timeout_s: float | None = None) -> Message | None: ...
@overload
def receive(self, timeout_s: float | None, /) -> Message | None: ...
@overload
def receive(self, kind: type[_Message], timeout_s: float | None = None) -> _Message | None: ...
"""

RECEIVE_NO_WAIT_OVERLOADS = """\
@overload
def receive_no_wait(self) -> Message | None: ...
@overload
def receive_no_wait(self, kind: type[_Message]) -> _Message | None: ...
"""

MESSAGE_VARIABLE = '_Message = TypeVar("_Message", bound=Message)\n'

TURNS = """\
TURNS_MAX = 64
\"\"\"Messages that `receive()` takes in a row without letting the loop's other tasks run.\"\"\"
"""

RECEIVE_IN_TASK = """\
# `_receive` without its steps: a message that is here pays for nothing else.
if kind is not None:
    kind, timeout_s = expectation(kind, timeout_s)
    if kind is not None:
        return await drive(self._receive(kind, timeout_s))
turn = self._turn
if not turn.acquire(False):
    raise self._guard.misused()
try:
    self._in_a_row += 1
    if self._in_a_row >= TURNS_MAX:
        self._in_a_row = 0
        await asyncio.sleep(0)
    if self._listener is None and self._undertakings.current is None and (message := self._take()) is not None:
        self._end.handing = None  # a task is interrupted only where it waits
        return message
    self._in_a_row = 0
    message = await drive(self._receiving(timeout_s))
    self._end.handing = None
    return message
finally:
    turn.release()
"""

ITERATE_CONSUMER = """\
def __iter__(self) -> Iterator[Message]:
    # No line of Python's lies between `receive()` and who iterates, where a message could be lost.
    return cast(Iterator[Message], iter(self.receive, None))
"""

ITERATE_CONSUMER_IN_TASK = """\
async def __aiter__(self) -> AsyncIterator[Message]:
    while (message := await self.receive()) is not None:
        yield message
"""

ITERATE_BROWSER = '''\
def __iter__(self) -> Iterator[Message]:
    """The messages, in the order in which they would be received.

    Raises:
        JMSError: the connection was lost meanwhile, or the queue cannot be browsed.
    """
    end = drive(self._look())
    try:
        while (message := drive(self._next(end))) is not None:
            yield message
    finally:
        self._end(end)
'''

ITERATE_BROWSER_IN_TASK = ITERATE_BROWSER.replace(
    "def __iter__(self) -> Iterator", "async def __aiter__(self) -> AsyncIterator"
).replace("drive(", "await drive(")

CLIENT_ID = '''\
@property
def client_id(self) -> str | None:
    """The client's own name, under which its durable subscriptions are kept; None if it has none.

    Setting it is `set_client_id()`.
    """
    return self._client_id

@client_id.setter
def client_id(self, client_id: str) -> None:
    self.set_client_id(client_id)
'''

CONNECTION_TYPES = """\
_session_type = Session
_world_type = Threads
"""

CONNECTION_TYPES_IN_TASK = """\
_session_type = Session
_world_type = EventLoop
_temporary_queue_type = TemporaryQueue
_temporary_topic_type = TemporaryTopic
"""

FACTORY_TYPES = """\
_connection_type = Connection
_context_type = JMSContext
"""

SESSION_TYPES = """\
_producer_type = MessageProducer
_consumer_type = MessageConsumer
_browser_type = QueueBrowser
"""

CONTEXT_TYPES = """\
_producer_type = JMSProducer
_consumer_type = JMSConsumer
"""
