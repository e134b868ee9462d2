"""Broker processes: they take the lock, serve, die, stop, hand over and restart."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from legato.errors import StoreError
from legato.ha.lease import Lease, Standing
from legato.ha.roles import Event
from legato.server.config.configuration import Config
from legato.server.connections.client_connection import Peer
from legato.server.process.service import Service
from simulator.disk import Disk, Writer
from simulator.kernel import Kernel, Process
from simulator.loop import VirtualClock, VirtualLoop
from simulator.member_files import MemberFiles
from simulator.network import Network, Pipe

if TYPE_CHECKING:
    from asyncio import Transport

FENCED_AFTER_MS = 2_000
LOCK_TRIED_US = (20_000, 600_000)
BACK_AFTER_US = (10_000, 3_000_000)
REFRESHED_EVERY_US = 500_000
STALL_US = (100, 300_000)


class ServerSocket:
    """What a `Peer` sees of its connection: asyncio's transport."""

    def __init__(self, kernel: Kernel, network: Network, pipe: Pipe, peer: Peer) -> None:
        self._kernel = kernel
        self._network = network
        self._pipe = pipe
        self._peer = peer
        self._reading = True
        self._lost = False
        self._closing = False
        self._stalled = False
        pipe.reader = self

    def readable(self) -> None:
        """Bytes, or the end, came."""
        pipe = self._pipe
        if self._lost or not self._reading:
            return
        if pipe.broken:
            self._lose(ConnectionResetError("connection reset"))
            return
        if pipe.inbox:
            data = bytes(pipe.inbox)
            pipe.inbox.clear()
            self._peer.data_received(data)
        if pipe.ended and not self._lost:
            self._peer.eof_received()
            self.close()

    def _lose(self, why: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._peer.connection_lost(why)

    # -- asyncio.Transport ---------------------------------------------------------------------------------------

    def get_write_buffer_size(self) -> int:
        """What was written and is not sent yet: nothing."""
        return 0

    def write(self, data: bytes) -> None:
        """Send; now and then the buffer is full for a while."""
        self._pipe.write(data)
        kernel = self._kernel
        if not self._stalled and not self._network.calm and kernel.chance(0.005):
            self._stalled = True
            kernel.after(kernel.between_us(*STALL_US), self._go_on)
            self._peer.pause_writing()

    def writelines(self, parts: list[bytes | memoryview]) -> None:
        """Send parts, one behind the other."""
        self.write(b"".join(parts))

    def _go_on(self) -> None:
        self._stalled = False
        if not self._lost:
            self._peer.resume_writing()

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing

    def can_write_eof(self) -> bool:
        """Without TLS one can."""
        return True

    def write_eof(self) -> None:
        """Nothing more will be sent."""
        self._pipe.close()

    def close(self) -> None:
        """Close after what was written."""
        self._closing = True
        self._pipe.close()
        self._kernel.after(0, self._lose, None)

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._pipe.reset()
        self._kernel.after(0, self._lose, None)

    def pause_reading(self) -> None:
        """Leave what comes where it is."""
        self._reading = False

    def resume_reading(self) -> None:
        """Go on."""
        self._reading = True
        self._kernel.after(0, self.readable)

    def set_write_buffer_limits(self, high: int) -> None:
        """When the buffer is full is left to chance."""

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        """The name of the other end; nothing else is known of it."""
        return (self._pipe.other.process.name, 0) if name == "peername" else None


class SimulatedEpoch:
    """What a service sees of its `PrimaryEpoch`: whom to tell that it cannot serve on."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def switch_over(self) -> None:
        """See `PrimaryEpoch.switch_over`; the host does that itself."""

    def use_tls(self, context: ssl.SSLContext) -> None:
        """See `EpochOwner.use_tls`: nothing here speaks TLS."""

    def note_connections(self, connections: int) -> None:
        """See `PrimaryEpoch.note_connections`; there are never many."""

    def fail(self, error: StoreError) -> None:
        """See `PrimaryEpoch.fail`."""
        self._host.failed()

    def lose(self, standing: Standing) -> None:
        """See `PrimaryEpoch.lose`."""
        self._host.failed()

    def backups(self) -> list[str]:
        """See `PrimaryEpoch.backups`."""
        return []


class Host:
    """A machine that runs a broker, again and again.

    Attributes:
        service: what it runs while it is the primary, or believes so.
    """

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        disk: Disk,
        name: str,
        configure: Callable[[], Config],
        directory: Path | None = None,
    ) -> None:
        self.name = name
        self.member_files: MemberFiles | None = None
        self._directory = directory
        self.configure = configure
        self.kernel = kernel
        self.network = network
        self.disk = disk
        self.clock = VirtualClock(kernel)
        self.loop = VirtualLoop(kernel)
        self.service: Service | None = None
        self.stopping = False
        self.process = Process(name)
        self.start()

    def start(self) -> None:
        """Begin anew, as a backup until the lock is free."""
        self.process = Process(self.name)
        self.stopping = False
        if self._directory is not None:
            self.member_files = MemberFiles(self._directory, self.name, self.clock)
            self.kernel.after_for(self.process, REFRESHED_EVERY_US, self._refresh, self.member_files)
        self.kernel.run_as(self.process, self._try_lock)

    def _refresh(self, member_files: MemberFiles) -> None:
        member_files.refresh()
        self.kernel.after(REFRESHED_EVERY_US, self._refresh, member_files)

    def _may_lock(self) -> bool:
        owner = self.disk.owner
        free = owner is None or not owner.alive
        return free and (self.member_files is None or self.member_files.lock.try_acquire())

    def _try_lock(self) -> None:
        if self._may_lock():
            self.disk.owner = self.process
            self._serve()
        else:
            self.kernel.after(self.kernel.between_us(*LOCK_TRIED_US), self._try_lock)

    def _serve(self) -> None:
        config = self.configure()
        process = self.process
        member_files = self.member_files
        if member_files is not None:
            member_files.turn(Event.WON)
        meta = self.disk.begin_epoch(self.name, self.clock.now_us())
        term_ms = FENCED_AFTER_MS if self.kernel.chance(0.5) else None
        lease = Lease(lambda: self.disk.owner is process, term_ms, self.clock.monotonic_ms())
        epoch = SimulatedEpoch(self)
        self.service = Service(config, self.disk, meta, self.clock, lease, epoch, lambda: config)
        if member_files is not None:
            member_files.lock.describe(meta.epoch, self.name, self.service.handshake.backup_token)
            member_files.turn(Event.ACTIVATED, meta.epoch)
        self.network.listen(self.name, self.process, self._accept)

    def _accept(self, pipe: Pipe) -> None:
        service = self.service
        if service is None or self.stopping:
            pipe.reset()
            return
        peer = Peer(service)
        socket: Transport = ServerSocket(self.kernel, self.network, pipe, peer)  # type: ignore[assignment]
        peer.connection_made(socket)
        if pipe.inbox:
            pipe.reader.readable()  # type: ignore[union-attr]

    def failed(self) -> None:
        """The service stopped itself: the process ends."""
        self.kernel.after(0, self.kill)

    # -- what happens to it --------------------------------------------------------------------------------------

    @property
    def serving(self) -> bool:
        """Whether it runs a broker that was not told to stop."""
        return self.process.alive and self.service is not None and not self.stopping

    def kill(self, *, power: bool = False, quietly: bool = False) -> None:
        """It dies, at once.

        Args:
            power: what the disk was not told to keep is lost.
            quietly: clients hear nothing of it.
        """
        process = self.process
        if not process.alive:
            return
        process.alive = False
        writer = Writer.writers.pop(process, None)
        if writer is not None:
            writer.died(power=power)
        self.network.died(process, quietly=quietly)
        service, self.service = self.service, None
        if service is not None:
            for peer in service.peers:
                peer.ended = True
                peer.amqp.free()
        if self.disk.owner is process:
            self.disk.owner = None
        if self.member_files is not None:
            self.member_files.died()
        self.kernel.after_for(None, self.kernel.between_us(*BACK_AFTER_US), self.start)

    def hand_over(self) -> None:
        """It is told to stop, and does so in good order."""
        service = self.service
        if service is not None and not self.stopping:
            self.stopping = True
            self.kernel.run_as(self.process, self.loop.drive, self._hand_over(service), self.kill)

    async def _hand_over(self, service: Service) -> None:
        """As `PrimaryEpoch` does it where there is a backup."""
        process, member_files = self.process, self.member_files
        if member_files is not None:
            member_files.turn(Event.LEAVES)
        await service.finish("switchover")
        if self.disk.owner is process:
            self.disk.owner = None
        if member_files is not None:
            member_files.lock.release("switchover")
        await service.dismiss("switchover")

    def stop_for(self, duration_us: int, *, lose_lock: bool) -> None:
        """It is stopped as by SIGSTOP; perhaps another takes over and it knows nothing of that."""
        process = self.process
        if process.paused or not process.alive:
            return
        process.paused = True
        if lose_lock and self.disk.owner is process:
            self.disk.owner = None
            if self.member_files is not None:
                self.member_files.lock.path.unlink(missing_ok=True)
        self.kernel.after_for(None, duration_us, self.kernel.resume, process)
