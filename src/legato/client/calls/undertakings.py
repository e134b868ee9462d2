"""Interrupted calls that complete in the background; the session's next call waits for them."""

from __future__ import annotations

from collections.abc import Callable


class Undertaking:
    """One commit, rollback, acknowledgement or recovery.

    1. It begins with one step: the session refers to it. Before that nothing has happened.
    2. Whoever was interrupted, and the session's next call, asks for it again; the I/O thread does it once.
    3. What the application's side makes of its end can be made of it again, if that too is interrupted.

    Args:
        what: for errors, what the call was to do.
        ask: has the I/O thread do it, unless it did.
        over: whether its outcome is known.
        conclude: what the session makes of that.
        resolved: whether its truth is waited for, even if the failover contract releases blocked calls.
    """

    __slots__ = ("ask", "conclude", "over", "resolved", "what")

    def __init__(
        self,
        what: str,
        ask: Callable[[], None],
        over: Callable[[], object],
        conclude: Callable[[], None],
        *,
        resolved: bool = False,
    ) -> None:
        self.what = what
        self.ask = ask
        self.over = over
        self.conclude = conclude
        self.resolved = resolved


class Told:
    """An error of a call, and how to report it again if an interruption hid it."""

    __slots__ = ("_again", "_error")

    def __init__(self, error: BaseException, again: Callable[[], None]) -> None:
        self._error = error
        self._again = again

    def heard_instead(self, interruption: BaseException) -> None:
        """The application got an interruption: of this error, perhaps."""
        context = interruption.__context__
        while context is not None:
            if context is self._error:
                self._again()
                return
            context = context.__context__
