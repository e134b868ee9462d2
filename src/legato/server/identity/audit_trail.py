"""Audit trail: who did what, and was it allowed, as lines of JSON in a file that is only added to, and as facts."""

from __future__ import annotations

import datetime
import errno
import json
import logging
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from legato.core.facts import ActionAudited
from legato.errors import ConfigError
from legato.quoting import sentence
from legato.server.config.secret_files import refuse_readable
from legato.server.shell import Peer

log = logging.getLogger("legato.audit")

LINES_WAITING_MAX = 10_000
"""A disk that stands still must not stop the broker, nor fill its memory."""
CHARACTERS_MAX = 255
"""Of each text: what peers say is data, and there is no end to it."""

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
"""Of opening the file. It may be a pipe: to open one that nobody reads would block."""
FACTS_PER_S, FACTS_BURST = 10, 100
"""Denials that become facts: whoever knocks at every door must not fill the ledger. The file has all of them."""
VIEWING = frozenset(("read", "query", "ticket", "assign", "begin", "acknowledge", "release", "publish", "discard"))
"""Operations of management that change nothing that facts do not tell already, and are asked for all the time."""


class AuditTrail:
    """Writes lines beside the event loop, in order.

    Args:
        file: None for no lines.
        now_us: the time, since 1970.
        record: puts a fact on record; None for no facts.
        detailed: whether logins and all of management become facts too.
    """

    def __init__(
        self,
        file: Path | None,
        now_us: Any,
        epoch: int,
        record: Callable[[ActionAudited], None] | None = None,
        *,
        detailed: bool = False,
    ) -> None:
        self._record = record
        self._detailed = detailed
        self._tokens, self._filled_us = float(FACTS_BURST), 0
        self._omitted = 0
        self._file = file
        self._now_us = now_us
        self._epoch = epoch
        self._waiting: queue.Queue[str | None] = queue.Queue(LINES_WAITING_MAX)
        self._lost = 0
        self._thread: threading.Thread | None = None
        if file is not None:
            # Who starts a broker is told before; a backup takes over all the same, and writes as soon as it can.
            try:
                check_audit_file(file)
            except ConfigError as error:
                log.error("! %s", sentence(str(error)))
            self._thread = threading.Thread(target=self._write, args=(file,), name="audit", daemon=True)
            self._thread.start()

    @property
    def is_kept(self) -> bool:
        """Whether there is one: what is to be said need not be gathered else."""
        return self._file is not None

    def say(self, event: str, peer: Peer | None, decision: str, **told: Any) -> None:
        """Add a line.

        Args:
            event: `login`, `denial`, `management`, `disconnection` or `epoch`.
            peer: who.
            decision: `allowed`, `refused` or `denied`.
            told: what else is known: `mechanism`, `operation`, `object`, `reason` ...
        """
        if self._record is not None and peer is not None and self._becomes_fact(event, decision, told):
            self._put_on_record(self._record, event, peer, decision, told)
        if self._file is None:
            return
        at = datetime.datetime.fromtimestamp(self._now_us() / 1_000_000, datetime.UTC)
        line: dict[str, Any] = {"at": at.isoformat(timespec="milliseconds"), "epoch": self._epoch, "event": event}
        if peer is not None:
            line |= {"user": peer.user, "from": peer.name, "client": peer.container or None}
        line["decision"] = decision
        line |= {key: value for key, value in told.items() if value not in (None, "")}
        text = json.dumps({key: _cut(value) for key, value in line.items()})
        try:
            self._waiting.put_nowait(text)
        except queue.Full:
            self._lost += 1
            if self._lost & (self._lost - 1) == 0:
                log.error("! the audit trail cannot be written fast enough: %s lines are lost", self._lost)

    def _becomes_fact(self, event: str, decision: str, told: dict[str, Any]) -> bool:
        if self._detailed or event in ("denial", "disconnection"):
            return True
        operation = told.get("operation")
        if event != "management" or not isinstance(operation, str):
            return False
        return decision == "denied" or operation.lower() not in VIEWING

    def _put_on_record(
        self, record: Callable[[ActionAudited], None], event: str, peer: Peer, decision: str, told: dict[str, Any]
    ) -> None:
        if decision != "allowed" and not self._may_record():
            self._omitted += 1
            return
        told = {"object_type" if key == "type" else key: value for key, value in told.items()}
        said = {key: str(_cut(value) or "") for key, value in told.items() if key in ActionAudited.__struct_fields__}
        user, origin, client = _cut(peer.user or ""), peer.name, _cut(peer.container)
        record(
            ActionAudited(
                event, decision=decision, user=user, origin=origin, client=client, omitted=self._omitted, **said
            )
        )
        self._omitted = 0

    def _may_record(self) -> bool:
        now_us = self._now_us()
        left = self._tokens + max(now_us - self._filled_us, 0) / 1_000_000 * FACTS_PER_S
        self._tokens, self._filled_us = min(left, float(FACTS_BURST)), now_us
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def stop(self) -> None:
        """Write what waits, and end."""
        if self._thread is not None:
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                return
            # Others wait for us to end; a disk that stands still is not worth more.
            self._thread.join(timeout=0.5)
            self._thread = None

    def _write(self, file: Path) -> None:
        failed, lost, writer = False, 0, _Writer(file)
        while (line := self._waiting.get()) is not None:
            lines = [line]
            end = False
            while len(lines) < 100 and not self._waiting.empty():
                more = self._waiting.get()
                if more is None:
                    end = True
                    break
                lines.append(more)
            try:
                writer.write(lines)
            except OSError as error:
                if not failed:
                    log.error("! the audit trail %s cannot be written: %s", file, _reason(error))
                failed, lost = True, lost + writer.unwritten
            else:
                if failed:
                    log.warning("! the audit trail %s is written again; lines that are lost: %d", file, lost)
                failed, lost = False, 0
            if end:
                return


class _Writer:
    """Adds lines to a file.

    Attributes:
        unwritten: lines of the last write that failed that are not in the file, or not whole.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._is_cut = False
        """Whether the last line that is there has no end."""
        self.unwritten = 0

    def write(self, lines: list[str]) -> None:
        """Add lines.

        Raises:
            OSError: some could not be written.
        """
        rest = "".join(f"{line}\n" for line in lines).encode()
        self.unwritten = len(lines)
        # Opened each time: whoever keeps old lines elsewhere may move the file away at any time.
        descriptor = os.open(self._file, _FLAGS, 0o600)
        try:
            # A pipe that is read slowly is waited for, as a disk is.
            os.set_blocking(descriptor, True)
            if self._is_cut and os.fstat(descriptor).st_size:
                rest = b"\n" + rest
            while rest:
                count = os.write(descriptor, rest)
                self._is_cut = rest[count - 1 : count] != b"\n"
                rest = rest[count:]
                self.unwritten = rest.lstrip(b"\n").count(b"\n")
        finally:
            os.close(descriptor)


def check_audit_file(file: Path) -> None:
    """See that an audit trail can be written to a file.

    Raises:
        ConfigError: it cannot, or others may read it.
    """
    refuse_readable(file, "The audit trail")
    try:
        os.close(os.open(file, _FLAGS, 0o600))
    except OSError as error:
        raise ConfigError(f"Cannot write the audit trail {file}: {_reason(error)}.") from None


def _reason(error: OSError) -> str:
    return "it is a pipe, and nobody reads it" if error.errno == errno.ENXIO else str(error.strerror)


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return str(value)[:CHARACTERS_MAX]
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:CHARACTERS_MAX]
