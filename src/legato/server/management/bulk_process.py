"""The bulk process: a child that serves ranges of queues and copies of the store, started with the first request."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any

from legato.bulk.stage_files import StageTicket
from legato.bulk.tickets import BODY_BYTES_MAX, TICKET_S, CopyTicket, Ticket, seal
from legato.server.config.configuration import Config
from legato.server.links.refused import Refused
from legato.server.management.requests import Pending, Rejection

log = logging.getLogger("legato.bulk")

_START_S = 60.0
HOLDER_BYTES = 32


class BulkProcess:
    """Keeps the bulk process for one epoch; the process ends when our end of its input closes.

    Args:
        advance: is called after something was answered outside a peer's turn.
        bound: whether there are users, so that each ticket must have a holder.
    """

    def __init__(
        self, config: Config, loop: asyncio.AbstractEventLoop, advance: Callable[[], None], bound: Callable[[], bool]
    ) -> None:
        self._bound = bound
        self._config = config
        self._loop = loop
        self._advance = advance
        self._secret = secrets.token_bytes(32)
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0
        self._starting: asyncio.Task[None] | None = None
        self._waiting: list[Callable[[int], None]] = []

    @property
    def port(self) -> int:
        """Port on which it listens; 0 if it does not, or not yet."""
        running = self._process is not None and self._process.returncode is None
        return self._port if running else 0

    def start(self, then: Callable[[int], None]) -> None:
        """Start it, and call `then` with its port once it listens: 0 if it cannot be started.

        Raises:
            Refused: what it needs is not installed.
        """
        if importlib.util.find_spec("pyarrow") is None:
            raise Refused("amqp:not-implemented", "The broker needs pyarrow for this: pip install 'legato[ledger]'.")
        self._waiting.append(then)
        if self._starting is None:
            self._starting = self._loop.create_task(self._start())

    def ticket(self, queue: int, after: int, through: int, *, bare: bool, body_bytes_max: int, holder: bytes) -> bytes:
        """A ticket for a range of a queue; `bare` without the messages themselves, else without larger bodies.

        Args:
            holder: see `legato.bulk.tickets`.
        """
        until_s = time.time() + TICKET_S
        bytes_max = min(body_bytes_max, BODY_BYTES_MAX)
        return seal(self._secret, Ticket(queue, after, through, until_s, bare, bytes_max, holder))

    def stage_ticket(self, transactional_id: str, batch: int, stage: str, holder: bytes) -> bytes:
        """A ticket to stage rows, once."""
        until_s = time.time() + TICKET_S
        ticket = StageTicket(transactional_id, batch, stage, until_s, holder, secrets.token_bytes(16))
        return seal(self._secret, ticket)

    def copy_ticket(self, holder: bytes) -> bytes:
        """A ticket for a copy of the store."""
        return seal(self._secret, CopyTicket(time.time() + TICKET_S, holder))

    def holder_in(self, arguments: dict[str, Any]) -> bytes:
        """The digest of the asking client's secret, which it must give if there are users.

        Raises:
            Rejection: it gives none, or something else.
        """
        digest = arguments.get("holder", "")
        if digest == "" and not self._bound():
            return b""
        try:
            holder = bytes.fromhex(digest)
            if len(holder) == HOLDER_BYTES:
                return holder
        except (TypeError, ValueError):
            pass
        raise Rejection(
            "The request needs holder, the SHA-256 digest of a secret of yours in hexadecimal digits: it makes the "
            "ticket useless to others. The Spark connector of this version gives it."
        )

    def renew(self) -> None:
        """Make all tickets useless, and those who read by one ask for another: users, roles or certificates have
        changed."""
        self._secret = secrets.token_bytes(32)
        starting = self._starting
        self._end()
        if starting is not None:
            self._starting = self._loop.create_task(self._start())

    def answer(self, name: str, ticket: bytes, **told: Any) -> Any:
        """Address for a ticket: the answer to a request, or a `Pending` while the process starts.

        Raises:
            Refused: what it needs is not installed.
        """

        def spell(port: int) -> dict[str, Any]:
            return {"port": port, "tls": self.is_tls, "ticket": ticket.hex()} | told

        if self.port:
            return spell(self.port)
        pending = Pending(name, "ticket")
        self.start(lambda port: pending.done(spell(port)))
        return pending

    @property
    def is_tls(self) -> bool:
        """Whether it speaks TLS, as the broker does."""
        return bool(self._config.tls.certificate)

    async def _start(self) -> None:
        self._port = 0
        try:
            self._port = await asyncio.wait_for(self._spawn(), _START_S)
        except (OSError, ValueError, TimeoutError) as error:
            log.error("! the process for reading in bulk did not start: %r", error)
        self._starting = None
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(self._port)
        self._advance()

    async def _spawn(self) -> int:
        config = self._config
        host, port = config.bulk_address
        options = ["--host", host, "--port", str(port), "--store", str(config.store_directory)]
        options += ["--stage-bytes-max", str(config.bulk.stage_bytes_max)]
        options += ["--memory-bytes-max", str(config.bulk_memory_bytes_max)]
        if self.is_tls:
            options += ["--certificate", config.tls.certificate, "--key", config.tls.key]
            if config.tls.client_ca and config.tls.client_certificates == "required":
                options += ["--client-ca", config.tls.client_ca]
        if self._bound():
            options.append("--bound")
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "legato.bulk.serve", *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(self._secret.hex().encode() + b"\n")
        told = (await process.stdout.readline()).decode(errors="replace").strip()
        if not told.isdecimal():
            raise ValueError(told or "it ended")
        return int(told)

    def stop(self) -> None:
        """Nothing is given out any more."""
        self._end()

    def _end(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None
        self._port = 0
