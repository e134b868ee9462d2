"""Progress of long work, on standard error."""

from __future__ import annotations

import sys
import time

from legato.cli.output import say

_TELL_S = {True: 0.5, False: 10.0}
"""How often progress is told: to a terminal, and else."""


class Progress:
    """How far long work is, on standard error.

    Args:
        doing: what is done: `imported`.
        total: how much there is to do; 0 until `at` says it.
        unit: of what, if that needs saying: `bytes`.
    """

    def __init__(self, doing: str, total: int = 0, unit: str = "") -> None:
        self._doing, self._total, self._unit = doing, total, unit
        self._is_terminal = sys.stderr.isatty()
        self._told = time.monotonic()
        self._shown = False

    def at(self, done: int, total: int | None = None) -> None:
        """So many are done, of as many as were said before, or of `total`."""
        now = time.monotonic()
        if now - self._told < _TELL_S[self._is_terminal]:
            return
        self._told = now
        line = f"{self._doing} {done:,} of {self._total if total is None else total:,} {self._unit}".rstrip()
        if self._is_terminal:
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()
            self._shown = True
        else:
            say(line, err=True)

    def end(self) -> None:
        """Leave the terminal's line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
