"""Consumption: an event loop in a thread of its own, with a task and a session for each of kombu's consumers.

Kombu's calls come from one thread and must not wait for messages; a session of Legato's is for one task at a time. So
each consumer is a task that receives and settles, and is told by commands what to settle.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from legato.client import AcknowledgementOutcome, AcknowledgeMode, DeliveryMode, Message, Topic
from legato.client.aio import Connection, ConnectionFactory, MessageConsumer, Session
from legato.errors import InvalidDestinationError, JMSError
from legato.kombu.bindings import LEASE_S, TABLE, Binding, lease_ms, row_of
from legato.quoting import quoted, sentence

log = logging.getLogger("legato.kombu")

UNDELIVERED_MAX = 100
"""Messages of a consumer without a limit that wait for kombu to take them."""
RENEWALS_PER_LEASE = 4
LOOK_S = 0.5
"""So often who waits for a broker looks whether that has taken too long."""
END_S = 10.0
"""The longest that closing waits for a broker that may be lost at that moment."""

_T = TypeVar("_T")
Deliver = Callable[["Puller", Message], None]
Fail = Callable[[JMSError], None]


class Quota:
    """A channel's prefetch count: how many messages it may have that are not settled. Of the event loop's thread."""

    def __init__(self) -> None:
        self.limit = 0
        """0: none."""
        self.held = 0
        self.pullers: set[Puller] = set()

    @property
    def full(self) -> bool:
        """Whether nothing more may be received."""
        return 0 < self.limit <= self.held

    def change(self, held: int) -> None:
        """So many more messages are held; the pullers may go on, or must not."""
        was_full = self.full
        self.held += held
        if was_full != self.full:
            self.tell()

    def tell(self) -> None:
        """Have the pullers look whether they may receive."""
        for puller in self.pullers:
            puller.wake()


class Puller:
    """One consumer: receives while its channel's quota has room, and settles what it is told to.

    It asks the broker for each message (prefetch 0), so that no message waits here that another worker could have. The
    methods are for kombu's thread, those with an underscore for the event loop's.
    """

    def __init__(
        self, receiving: Receiving, quota: Quota, binding: Binding, *, no_ack: bool, deliver: Deliver, fail: Fail
    ) -> None:
        self.binding = binding
        self.no_ack = no_ack
        self.tag: str | None = None
        """Of its consumer; of kombu's thread."""
        self._receiving = receiving
        self._quota = quota
        self._deliver = deliver
        self._fail = fail
        self._commands: deque[Callable[[], Awaitable[None]]] = deque()
        self._bell = asyncio.Event()
        self._undelivered = 0
        self._unsettled: dict[int, Message] = {}
        """Messages that kombu has, or that wait for it, by their identity."""
        self._stopping = False
        """It was asked to stop, which may have to wait for a broker; set by kombu's thread."""
        self._paused = False
        self._ended = False
        self._session: Session | None = None
        self._consumer: MessageConsumer | None = None
        self._task: asyncio.Task[None] | None = None

    # -- of kombu's thread -------------------------------------------------------------------------------

    def delivered(self) -> None:
        """Kombu has taken a message."""
        self._receiving.post(self._count, -1)

    def acknowledge(self, messages: list[Message]) -> None:
        """Settle messages; does not wait."""
        self._receiving.post(self._enqueue_acknowledgement, messages)

    def reject(self, messages: list[Message], reason: str) -> None:
        """Make messages dead letters; does not wait."""
        self._command(lambda: self._settle(messages, lambda session, each: session.reject(each, reason)))

    def give_back(self, messages: list[Message], *, failed: bool) -> None:
        """Have messages delivered again; does not wait."""
        self._command(
            lambda: self._settle(messages, lambda session, each: session.give_back(each, failed=failed, why=""))
        )

    def stop(self) -> None:
        """Receive nothing more; what was received can still be settled. Waits until that is so."""
        self._stopping = True
        self._receiving.ending(self._when_done(self._stop))

    def close(self) -> None:
        """Settle what was asked for, then end."""
        self._receiving.ending(self._close())

    @property
    def lost(self) -> bool:
        """Whether its connection is gone for good: nothing that it received can be settled."""
        return self._receiving.lost

    @property
    def ended(self) -> bool:
        """Whether it is done: it was stopped, and all that it had is settled."""
        return self._task is not None and self._task.done()

    def _command(self, command: Callable[[], Awaitable[None]]) -> None:
        self._receiving.post(self._enqueue, command)

    # -- of the event loop's thread ----------------------------------------------------------------------

    def wake(self) -> None:
        """Look again whether to receive, and what to do."""
        self._bell.set()

    async def _opened(self, connection: Connection) -> None:
        try:
            await self._open(connection)
        except BaseException:
            if self._session is not None:
                with contextlib.suppress(JMSError):
                    await self._session.close()
            raise

    async def _open(self, connection: Connection) -> None:
        mode = AcknowledgeMode.AUTO if self.no_ack else AcknowledgeMode.INDIVIDUAL
        session = self._session = connection.create_session(acknowledge_mode=mode)
        prefetch = UNDELIVERED_MAX if self.no_ack else 0
        self._consumer = await consumer_of(session, self.binding, prefetch)
        self._quota.pullers.add(self)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"legato kombu {self.binding.queue}")

    @property
    def _may_receive(self) -> bool:
        if self._stopping or self._paused or self._ended or self._undelivered >= UNDELIVERED_MAX:
            return False
        return self.no_ack or not self._quota.full

    def _enqueue(self, command: Callable[[], Awaitable[None]]) -> None:
        self._commands.append(command)
        self._bell.set()

    def _enqueue_acknowledgement(self, messages: list[Message]) -> None:
        self._receiving.unconfirmed[self.binding.queue] += len(messages)
        self._enqueue(lambda: self._acknowledge(messages))

    def _count(self, change: int) -> None:
        self._undelivered += change
        self._bell.set()

    async def _run(self) -> None:
        receiving: asyncio.Task[Message | None] | None = None
        consumer = self._consumer
        assert consumer is not None
        try:
            while True:
                self._bell.clear()
                if receiving is not None and not receiving.done() and (self._commands or not self._may_receive):
                    # Cancelled it has had no message: the next call returns what came meanwhile.
                    receiving.cancel()
                    await asyncio.wait([receiving])
                if receiving is not None and receiving.done():
                    message = None if receiving.cancelled() else receiving.result()
                    receiving = None
                    if message is None and not self._may_receive and not self._paused:
                        message = await consumer.receive(timeout_s=0)
                    if message is not None:
                        self._take(message)
                while self._commands:
                    await self._commands.popleft()()
                if self._ended:
                    return
                if self._paused and not self._unsettled:
                    await self._end()
                    return
                if receiving is None and self._may_receive:
                    receiving = asyncio.get_running_loop().create_task(consumer.receive())
                    receiving.add_done_callback(lambda _: self._bell.set())
                await self._bell.wait()
        except JMSError as error:
            self._fail(error)
        finally:
            self._quota.pullers.discard(self)
            if receiving is not None:
                receiving.cancel()

    def _take(self, message: Message) -> None:
        if (self._quota.full or self._stopping) and not self.no_ack:
            # Another queue's message was first, or nobody takes it. This one is not kept from other workers.
            assert self._session is not None
            self._session.give_back(message)
            return
        self._undelivered += 1
        if not self.no_ack:
            self._unsettled[id(message)] = message
            self._quota.change(1)
        self._deliver(self, message)

    async def _acknowledge(self, messages: list[Message]) -> None:
        for message in messages:
            try:
                outcome = await message.try_acknowledge()
                self._receiving.unconfirmed[self.binding.queue] -= 1
            finally:
                self._forget(message)
            if outcome is AcknowledgementOutcome.WENT_ELSEWHERE:
                log.warning(
                    "! %s of %s was acknowledged too late: another consumer has it.",
                    quoted(message),
                    quoted(self.binding.queue),
                )

    async def _settle(self, messages: list[Message], settle: Callable[[Session, Message], None]) -> None:
        assert self._session is not None
        for message in messages:
            settle(self._session, message)
            self._forget(message)

    def _forget(self, message: Message) -> None:
        if self._unsettled.pop(id(message), None) is not None:
            self._quota.change(-1)

    async def _stop(self) -> None:
        self._paused = True
        assert self._consumer is not None
        await self._consumer.close()

    async def _end(self) -> None:
        """Nothing is left to be settled: the broker may forget its session."""
        assert self._session is not None
        with contextlib.suppress(JMSError):
            await self._session.close()

    async def _when_done(self, command: Callable[[], Awaitable[None]]) -> None:
        """Have the task do something, and wait until it has, or has ended."""
        done = asyncio.Event()

        async def marked() -> None:
            await command()
            done.set()

        self._enqueue(marked)
        assert self._task is not None
        waiting = asyncio.ensure_future(done.wait())
        try:
            await asyncio.wait([waiting, self._task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await asyncio.wait([waiting])

    async def _close(self) -> None:
        self._ended = True
        self._bell.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._quota.pullers.discard(self)
        if self._session is not None:
            with contextlib.suppress(JMSError):
                for message in self._unsettled.values():
                    # Nobody failed: it is not counted.
                    self._session.give_back(message)
                await self._session.close()


async def consumer_of(session: Session, binding: Binding, prefetch: int) -> MessageConsumer:
    """A consumer of a queue; of a transient one, of the subscription that stands for it."""
    destination = binding.destination
    if isinstance(destination, Topic):
        return await session.create_shared_consumer(destination, binding.queue, prefetch=prefetch)
    return await session.create_consumer(destination, prefetch=prefetch)


class Receiving:
    """The event loop, its connection, its consumers, and the transient queues that it keeps alive.

    Args:
        factory: of its connection.
        fail: is called, in the event loop's thread, when the connection or a consumer is gone for good.
        given_up: whether a call of kombu's waits no longer for a broker; consumers go on.

    Raises:
        JMSError: no broker could be reached.
    """

    def __init__(self, factory: ConnectionFactory, fail: Fail, given_up: Callable[[], bool]) -> None:
        self._fail = fail
        self._given_up = given_up
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="legato kombu", daemon=True)
        self._thread.start()
        self._keepers: dict[str, tuple[Session, int]] = {}
        """Sessions that keep transient queues alive, with what `_deletions` was before."""
        self._deletions = 0
        """How often a consumer was told that its queue or topic is gone: whose, is not said."""
        self._leased: set[Binding] = set()
        self._renewing = asyncio.Lock()
        self._returned = asyncio.Event()
        """The connection was lost and is there again: bindings may have expired meanwhile."""
        self._renewal: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Task[Any]] = set()
        """What ends, and waits for a broker to do so."""
        self.unconfirmed: Counter[str] = Counter()
        """Acknowledgements that no broker has confirmed yet, by queue; of the event loop's thread."""
        self._closed = False
        try:
            self._connection = self.result(self._connect(factory))
        except BaseException:
            self._end_loop()
            raise

    async def _connect(self, factory: ConnectionFactory) -> Connection:
        connection = await factory.create_connection()
        connection.exception_listener = self._on_exception
        connection.failover_listener = lambda _: self._returned.set()
        connection.start()
        return connection

    def _on_exception(self, error: JMSError) -> None:
        """The listener hears of the end of the connection, and of less."""
        if self._connection.lost is not None:
            self._fail(error)
        else:
            self._deletions += isinstance(error, InvalidDestinationError)
            log.warning("! %s", sentence(error))

    @property
    def lost(self) -> bool:
        """Whether the connection is gone for good."""
        return self._connection.lost is not None

    @property
    def kept(self) -> set[Binding]:
        """The transient queues that it keeps alive, by their bindings."""
        return set(self._leased)

    def keeps(self, queue: str) -> bool:
        """Whether it keeps a queue alive: by a consumer that never receives."""
        return queue in self._keepers

    def may_have_lost(self, queue: str) -> bool:
        """Whether a transient queue that it keeps alive may have been deleted since, by anyone."""
        kept = self._keepers.get(queue)
        return kept is not None and kept[1] != self._deletions

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the event loop's thread, soon."""
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def result(self, steps: Coroutine[Any, Any, _T]) -> _T:
        """Have the event loop run something, and wait for it.

        Raises:
            JMSError: whatever it raises; or there is no broker, and was none for so long that nobody is to wait for it.
        """
        future: Future[_T] = asyncio.run_coroutine_threadsafe(steps, self._loop)
        while not wait([future], LOOK_S).done:
            if self._given_up():
                future.cancel()
                raise JMSError("No broker has come back for too long.")
        return future.result()

    def ending(self, steps: Coroutine[Any, Any, None]) -> None:
        """Have the event loop end something, and wait for it a while: without a broker that may take for ever.

        What has not ended then ends when there is a broker again, or with the connection.
        """
        if self._closed:
            steps.close()
            return
        future = asyncio.run_coroutine_threadsafe(self._ended(steps), self._loop)
        try:
            future.result(END_S if self._connection.host is not None else 0.0)
        except TimeoutError:
            log.debug("= a consumer ends later: there is no broker")

    async def _ended(self, steps: Coroutine[Any, Any, None]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        await steps

    def open(self, quota: Quota, binding: Binding, *, no_ack: bool, deliver: Deliver) -> Puller:
        """A consumer that receives.

        Raises:
            JMSError: the queue cannot be received from.
        """
        puller = Puller(self, quota, binding, no_ack=no_ack, deliver=deliver, fail=self._fail)
        self.result(puller._opened(self._connection))
        return puller

    def keep(self, bindings: set[Binding]) -> None:
        """Keep a transient queue alive with this connection: its subscription, and its bindings in the table."""
        self.result(self._keep(bindings))

    def release(self, queue: str) -> None:
        """Keep a transient queue alive no longer."""
        self.result(self._release(queue))

    async def _keep(self, bindings: set[Binding]) -> None:
        for binding in bindings:
            former = self._keepers.get(binding.queue)
            if former is None or former[1] != self._deletions:
                deletions = self._deletions
                session = self._connection.create_session()
                try:
                    # It never receives: it is there so that the subscription is.
                    await consumer_of(session, binding, 0)
                except BaseException:
                    with contextlib.suppress(JMSError):
                        await session.close()
                    raise
                self._keepers[binding.queue] = session, deletions
                if former is not None:
                    with contextlib.suppress(JMSError):
                        await former[0].close()
        self._leased |= bindings
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().create_task(self._renew())

    def let_go(self, gone: Callable[[Binding], bool]) -> None:
        """Renew some bindings no longer; when this returns no renewal of them is under way."""
        self.result(self._let_go(gone))

    async def _let_go(self, gone: Callable[[Binding], bool]) -> None:
        async with self._renewing:
            self._leased = {binding for binding in self._leased if not gone(binding)}

    async def _release(self, queue: str) -> None:
        self._leased = {binding for binding in self._leased if binding.queue != queue}
        kept = self._keepers.pop(queue, None)
        if kept is not None:
            await kept[0].close()

    def renew(self) -> None:
        """Have the bindings of its transient queues in the table again; returns when they are."""
        self.result(self._renew_all())

    async def _renew(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._returned.wait(), LEASE_S / RENEWALS_PER_LEASE)
            self._returned.clear()
            try:
                await self._renew_all()
            except JMSError as error:
                if self.lost or self._closed:
                    return  # of the loss the consumers tell
                log.warning("! Bindings of transient queues were not renewed: %s", sentence(error))

    async def _renew_all(self) -> None:
        async with self._renewing, self._connection.create_session() as session:
            producer = await session.create_producer(session.create_queue(TABLE))
            for binding in tuple(self._leased):
                await producer.send(
                    row_of(binding), time_to_live_ms=lease_ms(binding), delivery_mode=DeliveryMode.PERSISTENT
                )

    def close(self) -> None:
        """Close the connection, and end the thread. May be called again."""
        if self._closed:
            return
        self._closed = True
        try:
            # Not `result`: it takes its time without a broker too, to say what was not confirmed.
            asyncio.run_coroutine_threadsafe(self._disconnect(), self._loop).result()
        finally:
            self._end_loop()

    async def _disconnect(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        try:
            await self._connection.close()
        except JMSError as error:
            log.warning("! %s", sentence(error))
        if self._endings:
            await asyncio.wait(self._endings, timeout=END_S)
        for queue, count in (+self.unconfirmed).items():
            log.warning(
                "! No broker confirmed %d acknowledgements of %s: they may be delivered again.", count, quoted(queue)
            )

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
