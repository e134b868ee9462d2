"""Patches for one run: virtual time, seeded chance, threads and files replace the real ones."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import UUID

from legato import ids, limits
from legato.amqp.engine import batch, runs
from legato.amqp.engine.link_base import Link
from legato.client.calls import connection_steps, consumer_steps, producer_steps
from legato.client.links import channel, dispositions, receiver_end, transport, uploads
from legato.client.links.deliveries import Delivery
from legato.client.links.session_state import AcknowledgeMode
from legato.core import lanes
from legato.core.consumers import Browser, Consumer
from legato.core.message import Message
from legato.core.presentations import Presentations
from legato.core.queues import Queue
from legato.core.receivers import Receivers
from legato.core.reservations import Reservations
from legato.core.router import Router
from legato.core.settlement import Settlement
from legato.server.access.access import Access
from legato.server.access.permissions import Rights
from legato.server.connections import client_connection, handshake
from legato.server.management import staged_batches
from legato.server.messages import commits, executor, transfers
from legato.server.process import service, shutdown, timers
from legato.server.storage import maintenance
from simulator.clients import SimulatedGate, Task
from simulator.disk import Writer
from simulator.history import History
from simulator.kernel import Kernel
from simulator.loop import ReadingLoop, VirtualClock, VirtualLoop
from simulator.member_files import full_disk
from simulator.network import Network
from simulator.preempting import preempting
from simulator.transports import SimulatedMailbox, SimulatedTransport

SILENT_KINDS = ("consume", "listen", "subscribe_for_now", "join_the_crowd", "sip")
SILENT_MODES = (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK)
"""Who may be silent: what its application has had it acknowledges before anybody asks for it."""
SILENT = 0.6
PRUNE_EVERY_TICKS = 17
LARGE_MESSAGE_BYTES = 1_500
CHUNK_BYTES = 700
FRAME_BYTES = 1_024
"""The three of a run with large messages."""
PIECE_BYTES = 600
"""Of a file that is sent."""
PRODUCER_RETENTION_S = 120
"""Longer than any client is away, and short enough for a long run to see producers forgotten."""


@contextmanager
def installed(
    kernel: Kernel,
    network: Network,
    history: History,
    read_stage: Callable[[str], Any],
    is_full: Callable[[], bool],
    rights: Rights,
) -> Iterator[None]:
    """The production modules see the run's world.

    Args:
        read_stage: what a sink has staged, by the name of the stage.
        is_full: whether the disk has no room for anything.
        rights: those of whoever logs in, where brokers have roles.
    """
    reading = ReadingLoop(kernel)
    clock = VirtualClock(kernel)
    loop = VirtualLoop(kernel)
    Task.kernel = SimulatedTransport.kernel = Writer.kernel = kernel
    SimulatedTransport.network = network
    SimulatedTransport.history = history
    Writer.writers = {}
    SimulatedGate.made = 0
    deliver = executor.Executor._deliver

    def watched(self: executor.Executor, effect: Any) -> None:
        history.dispatching(self._broker.epoch, effect)
        deliver(self, effect)
        if effect.consumer.port.link.credit < 0:
            raise history.broken(f"consumer {effect.consumer.id} was given more messages than it had credit for")

    detach, release_container, release = Receivers.detach, Reservations.release_container, Settlement.release

    def watched_detach(self: Receivers, consumer: Consumer, **options: Any) -> None:
        if (
            self._kernel.epoch == history.epoch
            and options.get("hold_until_us")
            and consumer.reports_presented
            and consumer in consumer.queue.consumers
        ):
            history.went_away(consumer.id, consumer.container)
        detach(self, consumer, **options)

    def watched_close(self: Reservations, container: str) -> None:
        if self._kernel.epoch == history.epoch:
            history.came_back(container)
        release_container(self, container)

    def watched_release(self: Settlement, consumer: Consumer, message: Message) -> bool:
        if self._kernel.epoch == history.epoch and message.consumer is consumer:
            history.was_given_back(message, consumer)
        return release(self, consumer, message)

    record = Presentations.record

    def watched_record(self: Presentations, message: Message, consumer: Consumer) -> None:
        if self._kernel.epoch == history.epoch:
            history.is_recorded(message, consumer)
        record(self, message, consumer)

    drop = Router.drop

    def watched_drop(self: Router, message: Message, cause: str) -> None:
        if cause == "dropped":
            history.is_dropped(message)
        drop(self, message, cause)

    announce = receiver_end.ReceiverEnd.announce

    def watched_announce(self: receiver_end.ReceiverEnd, delivery: Delivery) -> None:
        history.is_announced(delivery)
        announce(self, delivery)

    def cut_off(self: client_connection.Peer, error: Exception) -> None:
        raise history.broken(f"an internal error cost {self.name} its connection: {error!r}") from error

    replaced: list[tuple[Any, str, Any]] = [
        (client_connection.Peer, "_cut_off", cut_off),
        (receiver_end.ReceiverEnd, "announce", watched_announce),
        (Router, "drop", watched_drop),
        (transport, "time", clock),
        (transport, "Random", lambda: kernel.random),
        (transport, "Mailbox", SimulatedMailbox),
        (transport, "Gate", SimulatedGate),
        (transport, "threading", SimpleNamespace(Thread=lambda **_: None)),
        (channel, "Gate", SimulatedGate),
        (connection_steps, "Transport", SimulatedTransport),
        (consumer_steps, "time", clock),
        (producer_steps, "time", clock),
        (ids, "uuid", SimpleNamespace(uuid4=lambda: UUID(int=kernel.random.getrandbits(128)))),
        (commits, "GroupWriter", Writer),
        (service, "Random", lambda: kernel.random),
        (service, "asyncio", SimpleNamespace(**_events())),
        (shutdown, "asyncio", SimpleNamespace(**_events(), wait_for=loop.wait_for)),
        (client_connection, "asyncio", SimpleNamespace(**_events())),
        (staged_batches, "asyncio", SimpleNamespace(get_running_loop=lambda: reading, gather=reading.gather)),
        (staged_batches, "path_of", lambda store, name, batch, stage: stage),
        (staged_batches, "read_stage", read_stage),
        (staged_batches, "stages_through", lambda *_: []),
        (staged_batches, "remove_stages", lambda *_: None),
        (maintenance, "asyncio", SimpleNamespace(**_events())),
        (maintenance, "time", clock),
        # Most runs are over before the usual time: producers would be refused for the rest of them.
        (timers, "UPKEEP_EVERY_TICKS", 1),
        *(_retention() if history.plan.prunes else []),
        *(_sizes() if history.plan.large else []),
        *([(Access, "rights_of", lambda *_, **__: rights)] if history.plan.links_end else []),
        *(_pieces() if history.plan.uploads else []),
        *(preempting(kernel) if history.plan.preempted else []),
        *(_runs(history.plan.run_min) if history.plan.run_min else []),
        *(_silence(kernel, history) if history.plan.silent else []),
        *(full_disk(is_full) if history.plan.papers else []),
        (executor.Executor, "_deliver", watched),
        (Receivers, "detach", watched_detach),
        (Reservations, "release_container", watched_close),
        (Settlement, "release", watched_release),
        (Presentations, "record", watched_record),
        *_hashes(),
    ]
    running = asyncio._get_running_loop()
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(patch.object(owner, name, value))
        disabled, logging.root.manager.disable = logging.root.manager.disable, logging.CRITICAL
        asyncio._set_running_loop(loop)  # type: ignore[arg-type]
        try:
            yield
        finally:
            asyncio._set_running_loop(running)
            logging.root.manager.disable = disabled


def _retention() -> list[tuple[Any, str, Any]]:
    """Brokers forget what is past its time, often and as much as they may."""
    return [
        (timers, "PRUNE_EVERY_TICKS", PRUNE_EVERY_TICKS),
        (limits, "PRODUCERS_KEPT", 0),
        (limits, "OUTCOMES_KEPT", 0),
        (limits, "PRODUCER_RETENTION_S", PRODUCER_RETENTION_S),
    ]


def _sizes() -> list[tuple[Any, str, Any]]:
    """Messages are large much sooner."""
    settings: Any = vars(handshake)["Settings"]
    return [
        (limits, "LARGE_MESSAGE_BYTES", LARGE_MESSAGE_BYTES),
        (limits, "CHUNK_BYTES", CHUNK_BYTES),
        # A message is streamed if it does not come in one frame.
        (handshake, "Settings", lambda **said: settings(**{**said, "max_frame_bytes": FRAME_BYTES})),
    ]


def _pieces() -> list[tuple[Any, str, Any]]:
    """What goes out of files goes in small pieces, one at a time."""
    return [
        (uploads, "PIECE_BYTES", PIECE_BYTES),
        (uploads, "WINDOW_BYTES", 3 * PIECE_BYTES),
        (uploads, "PIECES_IN_ONE_GO", 1),
    ]


def _runs(run_min: int) -> list[tuple[Any, str, Any]]:
    """Few messages that come together are a run."""
    return [(module, "RUN_MIN", run_min) for module in (batch, runs, lanes, transfers)]


def _silence(kernel: Kernel, history: History) -> list[tuple[Any, str, Any]]:
    """Some consumers say nothing of what reached their applications, as those of other libraries do."""
    attach, present = receiver_end.ReceiverEnd.attach, dispositions.DispositionEnd.present
    attach_at_broker = Receivers.attach

    def attach_silently(self: receiver_end.ReceiverEnd) -> None:
        kind = kernel.process.name.partition("-")[0] if kernel.process is not None else ""
        if not self.ready and kind in SILENT_KINDS and self.channel.mode in SILENT_MODES and kernel.chance(SILENT):
            history.silent.add(_receiver_of(self))
        attach(self)

    def present_silently(self: dispositions.DispositionEnd, delivery: Delivery) -> None:
        if _receiver_of(delivery.consumer) not in history.silent:
            present(self, delivery)

    def attach_silent(self: Receivers, queue: Queue, port: Any, container: str, **options: Any) -> Any:
        if (container, options.get("name")) in history.silent:
            options["reports_presented"] = False
        return attach_at_broker(self, queue, port, container, **options)

    return [
        (receiver_end.ReceiverEnd, "attach", attach_silently),
        (dispositions.DispositionEnd, "present", present_silently),
        (Receivers, "attach", attach_silent),
    ]


def _receiver_of(end: receiver_end.ReceiverEnd) -> tuple[str, str]:
    """Its container and its link's name: who it is for brokers."""
    return end.channel.transport.connecting.settings.container_id, end.name  # type: ignore[attr-defined]


def _events() -> dict[str, Any]:
    return {"get_running_loop": asyncio.get_running_loop, "Event": asyncio.Event, "Transport": asyncio.Transport}


def _hashes() -> list[tuple[type, str, Callable[[Any], int]]]:
    """What is kept in sets is iterated over in the same order in every process."""
    return [
        (Queue, "__hash__", lambda queue: queue.id),
        (Consumer, "__hash__", lambda consumer: consumer.id),
        (Browser, "__hash__", lambda browser: browser.queue.id),
        (Link, "__hash__", lambda link: zlib.crc32(link.name.encode())),
        (client_connection.Peer, "__hash__", lambda p: zlib.crc32(p.name.encode())),
    ]
