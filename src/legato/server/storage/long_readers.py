"""Long readers: processes whose reads make the store's file grow, named in the log and the status."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from legato.quoting import WORD_CHARACTERS_MAX, escaped
from legato.store.base import Reading, ReadingsFound

log = logging.getLogger("legato.readers")

PATIENCE_MS = 1_500
"""Less than the time between two looks: who is seen in two of them with the same read is named."""
COMMAND_CHARACTERS_MAX = 120


class LongReader(msgspec.Struct):
    """A live process whose read keeps the store from reusing free pages."""

    pid: int
    command: str
    """What it runs, as far as this machine's list of processes knows."""
    stopped: bool
    """Whether it was stopped (SIGSTOP, a debugger)."""
    since_us: int
    """When it was first seen, microseconds since 1970; it began before that, by some seconds at most."""
    grown_bytes: int
    """By how much the store's file has grown since."""


class ReaderWatch:
    """Tracks reads from one look to the next."""

    def __init__(self) -> None:
        self.long: list[LongReader] = []
        """Who is to be named now."""
        self._first_seen: dict[Reading, tuple[int, int, int]] = {}
        """By the wall clock, by the monotonic one, and how far the store's content reached then."""
        self._told: set[Reading] = set()

    def look(self, found: ReadingsFound, now_us: int, monotonic_ms: int) -> None:
        """Take note of the reads that hold pages now."""
        if found.cleared:
            log.info("= %s reads of processes that died are no longer waited for", found.cleared)
        seen = self._first_seen
        self._first_seen = {
            reading: seen.get(reading, (now_us, monotonic_ms, found.reach_bytes)) for reading in found.holding
        }
        self._told &= self._first_seen.keys()
        self.long = []
        for reading, (since_us, since_ms, reach_bytes) in self._first_seen.items():
            if monotonic_ms - since_ms >= PATIENCE_MS:
                reader = LongReader(
                    reading.pid,
                    _command(reading.pid),
                    _is_stopped(reading.pid),
                    since_us,
                    max(found.reach_bytes - reach_bytes, 0),
                )
                self.long.append(reader)
                if reading not in self._told:
                    self._told.add(reading)
                    log.warning(
                        "! process %s%s reads the store and does not end: until it does, the store's file grows",
                        reader.pid,
                        f" ({escaped(reader.command, WORD_CHARACTERS_MAX)})" if reader.command else "",
                    )


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return " ".join(b" ".join(words).decode(errors="replace").split())[:COMMAND_CHARACTERS_MAX]


def _is_stopped(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")
