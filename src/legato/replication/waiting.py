"""Why a replica waits, and since when: told to the log of the broker, and to whoever shows its status."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable

from legato.quoting import sentence

log = logging.getLogger("legato.replication")

_NUMBER = re.compile(r"\d+")


class Waiting:
    """What a replica waits for, as its parts see it. Any thread may use it.

    Args:
        now_us: the clock of the machine.

    Attributes:
        since_us: since when there is a reason, microseconds since 1970; None if there is none.
        changed: called in any thread after a reason has come or gone.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.since_us: int | None = None
        self.changed: Callable[[], None] = lambda: None
        self._now_us = now_us
        self._began_s = 0.0
        self._reasons: dict[str, str] = {}
        self._told: set[str] = set()
        self._changing = threading.Lock()

    @property
    def why(self) -> list[str]:
        """The reasons, each once; none if it does not wait."""
        return list(dict.fromkeys(self._reasons.values()))

    def begin(self, part: str, why: str) -> None:
        """One of its parts cannot go on.

        Args:
            part: which; it has one reason at a time.
            why: in a sentence. It is logged once until the replica goes on, whatever numbers are in it.
        """
        with self._changing:
            if self._reasons.get(part) == why:
                return
            if not self._reasons:
                self.since_us, self._began_s = self._now_us(), time.monotonic()
            self._reasons = {**self._reasons, part: why}
            kind = _NUMBER.sub("0", why)
            is_new = kind not in self._told
            self._told.add(kind)
        if is_new:
            log.warning("! the replica waits: %s", sentence(why))
        self.changed()

    def end(self, part: str) -> None:
        """The part goes on, if it waited."""
        with self._changing:
            if part not in self._reasons:
                return
            self._reasons = {each: why for each, why in self._reasons.items() if each != part}
            if self._reasons:
                return
            self.since_us = None
            self._told.clear()
        log.info("= the replica goes on, after %.1f s", time.monotonic() - self._began_s)
        self.changed()
