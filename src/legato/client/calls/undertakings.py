"""Interrupted calls that complete in the background; the session's next call waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from legato.client.calls.session_guard import SessionGuard
from legato.client.steps import Steps
from legato.errors import IllegalStateError, JMSError


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
        lost: what to raise if its outcome cannot be had any more, and why.
    """

    __slots__ = ("ask", "conclude", "lost", "over", "resolved", "what")

    def __init__(
        self,
        what: str,
        ask: Callable[[], None],
        over: Callable[[], object],
        conclude: Callable[[], None],
        *,
        resolved: bool = False,
        lost: Callable[[JMSError], JMSError] | None = None,
    ) -> None:
        self.what = what
        self.ask = ask
        self.over = over
        self.conclude = conclude
        self.resolved = resolved
        self.lost = lost


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


class Undertakings:
    """What a session's calls have begun, one at a time, and the error that the last of them told.

    Attributes:
        current: what a call has begun; that call was interrupted if another one finds it here.
        told: the last error that another call must not forget if it was not heard.
    """

    __slots__ = ("_guard", "current", "told")

    def __init__(self, guard: SessionGuard) -> None:
        self._guard = guard
        self.current: Undertaking | None = None
        self.told: Told | None = None

    def check_open(self) -> None:
        """Raise if the session is closed or gone for good, and what a call had begun is not known to be done."""
        undertaking = self.current
        if undertaking is None or undertaking.lost is None:
            self._guard.check_open()
            return
        try:
            self._guard.check_open()
        except IllegalStateError:
            raise
        except JMSError as error:
            if not undertaking.over():
                self._give_up(undertaking, error)

    def undertake(self, undertaking: Undertaking, over: Callable[[], object] | None = None) -> Steps[None]:
        """Begin something and wait for its end, or until `over()`."""
        # Who begins something has heard what the last call told.
        self.told = None
        self.current = undertaking
        undertaking.ask()
        try:
            yield from self._guard.wait(
                over or undertaking.over, undertaking.what, resolved=undertaking.resolved, unconfirmed=True
            )
        except JMSError as error:
            self._give_up(undertaking, error)
        undertaking.conclude()
        self.current = None

    def _give_up(self, undertaking: Undertaking, error: JMSError) -> NoReturn:
        self.current = None
        if undertaking.lost is None:
            raise error
        raise undertaking.lost(error) from error

    def hear(self, until: Callable[[], object] | None = None, timeout_s: float | None = None) -> Steps[bool]:
        """Wait for the end of what an interrupted call had begun; returns whether there is nothing of that left.

        Args:
            until: when to wait no more.
        """
        undertaking = self.current
        if undertaking is None:
            return True
        undertaking.ask()
        over = undertaking.over
        try:
            ready = over if until is None else lambda: over() or until()
            heard = yield from self._guard.wait(
                ready, undertaking.what, timeout_s, resolved=undertaking.resolved, unconfirmed=True
            )
        except JMSError as error:
            self._give_up(undertaking, error)
        if heard and over():
            undertaking.conclude()
            self.current = None
            return True
        return False

    def tell(self, error: JMSError, forget: Callable[[], object], again: Callable[[], None]) -> NoReturn:
        """Raise an error that another call must not forget if it was not heard.

        Args:
            forget: what the session does once it is told of.
            again: has the next call tell of it, if an interruption hid it.
        """
        self.told = Told(error, again)
        try:
            raise error
        except JMSError:
            # From here on an interruption has the error as its context; before, nothing is forgotten.
            forget()
            raise

    def ask_again(self) -> None:
        """A call was interrupted: what it had begun goes on, even if the I/O thread was not asked yet."""
        if self.current is not None:
            self.current.ask()
