"""The bulk process: a child that serves ranges of queues, started with the first request."""

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
from legato.bulk.tickets import BODY_BYTES_MAX, TICKET_S, Ticket, seal
from legato.server.config.configuration import Config
from legato.server.links.refused import Refused
from legato.server.management.requests import Pending

log = logging.getLogger("legato.bulk")

_START_S = 60.0


class BulkProcess:
    """Keeps the bulk process for one epoch; the process ends when our end of its input closes.

    Args:
        advance: is called after something was answered outside a peer's turn.
    """

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, advance: Callable[[], None]) -> None:
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
            raise Refused("amqp:not-implemented", "The broker needs pyarrow for this: pip install 'legato[spark]'.")
        self._waiting.append(then)
        if self._starting is None:
            self._starting = self._loop.create_task(self._start())

    def ticket(
        self, queue: int, after: int, through: int, *, bare: bool = False, body_bytes_max: int = BODY_BYTES_MAX
    ) -> bytes:
        """A ticket for a range of a queue; `bare` without the messages themselves, else without larger bodies."""
        until_s = time.time() + TICKET_S
        return seal(self._secret, Ticket(queue, after, through, until_s, bare, min(body_bytes_max, BODY_BYTES_MAX)))

    def stage_ticket(self, transactional_id: str, batch: int, stage: str) -> bytes:
        """A ticket to stage rows."""
        return seal(self._secret, StageTicket(transactional_id, batch, stage, time.time() + TICKET_S))

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
        finally:
            self._starting = None
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(self._port)
        self._advance()

    async def _spawn(self) -> int:
        config = self._config
        tls = ("--certificate", config.tls.certificate, "--key", config.tls.key) if self.is_tls else ()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "legato.bulk.serve", "--store", str(config.store_directory)),
            *("--host", config.host_and_port[0], *tls),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(self._secret.hex().encode() + b"\n")
        return int(await self._process.stdout.readline())

    def stop(self) -> None:
        """Nothing is given out any more."""
        if self._starting is not None:
            self._starting.cancel()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
