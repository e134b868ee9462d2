"""Browsers: copies of waiting messages, without consuming them (Jakarta Messaging 4.1.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legato import limits
from legato.core.consumers import Browser, Matcher
from legato.core.effects import Drained, Show
from legato.core.facts import MessagesAssigned
from legato.core.kernel import Kernel
from legato.core.message import Message
from legato.core.queues import Queue


class Browsers:
    """The browsers of all queues."""

    __slots__ = ("_browsers", "_early", "_kernel", "_unshown")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._browsers: set[Browser] = set()
        self._early: dict[Browser, None] = {}
        """Browsers that wait for what was published before they came to be durable."""
        self._unshown: dict[Browser, None] = {}
        """Browsers that saw a part of what they want: the rest is for `go_on`."""

    def browse(self, queue: Queue, port: Any, matches: Matcher | None = None) -> Browser:
        """A browser comes: it sees what waits now, by priority."""
        browser = Browser(queue, port, matches)
        self._browsers.add(browser)
        return browser

    def leave(self, browser: Browser) -> None:
        """A browser is gone."""
        self._browsers.discard(browser)

    def flow(self, browser: Browser, credit: int, draining: bool) -> None:
        """The browser's credit is now `credit`."""
        browser.credit = credit
        browser.draining = draining
        self._show(browser)

    def block(self, browser: Browser, blocked: bool) -> None:
        """The browser's connection cannot take more bytes now, or can again."""
        browser.blocked = blocked
        self._show(browser)

    def show_early(self) -> None:
        """Something became durable: browsers that wait for that may go on."""
        early, self._early = [browser for browser in self._early if browser in self._browsers], {}
        for browser in early:
            self._show(browser)

    def go_on(self) -> None:
        """The next slice of what was shown in part."""
        is_over = self._kernel.begin_slice()
        unshown, self._unshown = [browser for browser in self._unshown if browser in self._browsers], {}
        for place, browser in enumerate(unshown, 1):
            self._show(browser)
            if place < len(unshown) and is_over():
                self._unshown = dict.fromkeys(unshown[place:]) | self._unshown
                self._kernel.scan_again()
                break

    def _show(self, browser: Browser) -> None:
        """Send as many copies as there is credit for, after a look at no more than a slice."""
        if browser.blocked:
            return
        if browser.early:
            self._early[browser] = None
            return
        budget = limits.SCAN_MESSAGES
        left_bytes = limits.SHOWN_BYTES_IN_ONE_GO
        is_over = self._kernel.begin_slice()
        gone = self._going(browser.queue)
        messages: list[Message] = []
        while browser.credit > len(messages) and (number := browser.unfinished) is not None:
            if budget <= 0 or left_bytes <= 0 or is_over():
                self._unshown[browser] = None
                self._kernel.scan_again()
                break
            before = len(messages)
            budget -= self._look(browser, number, browser.credit - before, left_bytes, gone, messages, is_over)
            left_bytes -= sum(message.size for message in messages[before:])
        if messages:
            browser.credit -= len(messages)
            self._kernel.emit(Show(browser, messages))
        if browser.draining and browser not in self._unshown:
            browser.draining = False
            browser.credit = 0
            self._kernel.emit(Drained(browser))

    def _look(
        self,
        browser: Browser,
        number: int,
        limit: int,
        limit_bytes: int,
        gone: _Going,
        messages: list[Message],
        is_over: Callable[[], bool],
    ) -> int:
        """Look at the next part of a lane; returns at how many messages."""
        queue = browser.queue
        until = browser.until[number]
        limit = limits.SCAN_MESSAGES if browser.matches else min(limit, limits.SCAN_MESSAGES)
        found = self._kernel.archive.messages(queue.id, browser.after[number], limit, limit_bytes)
        if not found:
            browser.after[number] = until
        for stored in found:
            if stored.seq > until:
                browser.after[number] = until
                break
            if browser.credit == len(messages) or is_over():
                break
            browser.after[number] = stored.seq
            expired = stored.expires_us and stored.expires_us <= self._kernel.now_us
            if expired or stored.seq in gone or (browser.matches and not browser.matches(stored.body)):
                continue
            message = Message(queue, stored.seq, stored.body, len(stored.body))
            message.count = stored.count
            messages.append(message)
        return max(len(found), 1)

    def _going(self, queue: Queue) -> _Going:
        """Sequences that are consumed by what is not committed yet: nobody shall see them any more."""
        going = _Going()
        for commit in self._kernel.commits:
            going.seqs |= commit.taken(queue)
            going.runs += [
                range(fact.seq, fact.seq + fact.count)
                for fact in commit.facts
                if isinstance(fact, MessagesAssigned) and fact.queue == queue.id
            ]
        return going


class _Going:
    """Messages that leave a queue with commits that are not durable yet: single ones, and runs that are assigned."""

    def __init__(self) -> None:
        self.seqs: set[int] = set()
        self.runs: list[range] = []

    def __contains__(self, seq: int) -> bool:
        return seq in self.seqs or any(seq in run for run in self.runs)
