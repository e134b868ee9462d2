"""Audit trail: who did what, and was it allowed, as lines of JSON in a file that is only added to."""

from __future__ import annotations

import datetime
import json
import logging
import os
import queue
import threading
from pathlib import Path
from typing import Any

from legato.errors import ConfigError
from legato.server.config.secret_files import refuse_readable
from legato.server.shell import Peer

log = logging.getLogger("legato.audit")

LINES_WAITING_MAX = 10_000
"""A disk that stands still must not stop the broker, nor fill its memory."""
CHARACTERS_MAX = 255
"""Of each text: what peers say is data, and there is no end to it."""


class AuditTrail:
    """Writes lines beside the event loop, in order.

    Args:
        file: None for no trail.
        now_us: the time, since 1970.

    Raises:
        ConfigError: the file cannot be written, or others may read it.
    """

    def __init__(self, file: Path | None, now_us: Any, epoch: int) -> None:
        self._file = file
        self._now_us = now_us
        self._epoch = epoch
        self._waiting: queue.Queue[str | None] = queue.Queue(LINES_WAITING_MAX)
        self._lost = 0
        self._thread: threading.Thread | None = None
        if file is not None:
            check_audit_file(file)
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
        failed = False
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
                # Opened each time: whoever keeps old lines elsewhere may move the file away at any time.
                descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    os.write(descriptor, "".join(f"{text}\n" for text in lines).encode())
                finally:
                    os.close(descriptor)
                failed = False
            except OSError as error:
                if not failed:
                    log.error("! the audit trail %s cannot be written: %s", file, error.strerror)
                failed = True
            if end:
                return


def check_audit_file(file: Path) -> None:
    """See that an audit trail can be written to a file.

    Raises:
        ConfigError: it cannot, or others may read it.
    """
    refuse_readable(file, "The audit trail")
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ConfigError(f"Cannot write the audit trail {file}: {error.strerror}.") from None


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return str(value)[:CHARACTERS_MAX]
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:CHARACTERS_MAX]
