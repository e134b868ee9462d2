"""Endings of commands that leave files half written: a signal that ends one undoes them first, as Ctrl-C does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""As `timeout` and service managers send them, and a terminal that goes away."""


@contextmanager
def undone_if_ended() -> Iterator[None]:
    """What is within is left as by Ctrl-C if a signal is to end the process, which then ends by that signal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def leave(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        raise KeyboardInterrupt

    own = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in own:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in own:
            signal.signal(number, signal.SIG_DFL)
        if asked:
            os.kill(os.getpid(), asked[0])
