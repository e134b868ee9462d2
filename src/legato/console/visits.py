"""Visits: who looks at the console, with which login, and what is kept for each between two pages."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from legato.console.broker_link import BrokerLink, Recent
from legato.console.dead_letter_index import Indexes
from legato.console.jobs import Jobs
from legato.errors import JMSError, JMSSecurityError

IDLE_MAX_S = 30 * 60.0
"""A visit ends when its visitor has asked for nothing for so long; an open page asks all the time."""
LEVEL_AGE_MAX_S = 2.0
"""What a user may do is asked again then: roles, users and passwords may have changed."""
DENIED = "403"
"""The code of the answer to who may not even look."""
VISITS_MAX = 100
VISITS_OF_USER_MAX = 20
"""Of one user; each has connections of its own, and what was read of dead letters."""
LEVELS = ("none", "view", "operate", "administer")


@dataclass
class Broker:
    """What is kept for all visits with the same login.

    Attributes:
        user: the broker's name for who has logged in; empty: nobody needs to.
        level: what the user may do by management: one of `LEVELS`.
        login: what the user gave as a name.
    """

    link: BrokerLink
    user: str
    level: str
    login: str = ""
    recent: Recent = field(default_factory=Recent)
    indexes: Indexes = field(init=False)
    jobs: Jobs = field(init=False)

    def __post_init__(self) -> None:
        self.indexes = Indexes(self.link)
        self.jobs = Jobs()

    def may(self, level: str) -> bool:
        """Whether the user reaches a level."""
        return LEVELS.index(self.level) >= LEVELS.index(level)

    def renew(self) -> None:
        """Learn what the user may do now; as far as nobody can be asked it is as it was."""
        try:
            told = self.recent.get("user", LEVEL_AGE_MAX_S, lambda: self.link.request("read", "user"))
        except JMSError as error:
            if self.link.is_refused or error.code == DENIED:
                self.level = LEVELS[0]
        else:
            self.level = str(told["management"])

    def close(self) -> None:
        """Nobody looks any more."""
        self.jobs.stop()
        self.leave()

    def leave(self) -> None:
        """Nobody looks any more, and jobs of others go on."""
        self.indexes.stop()
        self.link.close()


@dataclass(eq=False)
class Visit:
    """One browser's visit.

    Attributes:
        csrf: that each of its forms has.
        said: sentences for its next page, each with whether it is good news.
    """

    broker: Broker
    shared: bool
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    used_s: float = field(default_factory=time.monotonic)
    said: list[tuple[bool, str]] = field(default_factory=list)

    @property
    def whose(self) -> tuple[bool, str]:
        """The login that it has in common with others."""
        # A broker without roles does not say who it is.
        return self.shared, self.broker.user or self.broker.login

    def say(self, sentence: str, *, good: bool = True) -> None:
        """Something for the visitor to read on the next page."""
        self.said.append((good, sentence))

    def heard(self) -> list[tuple[bool, str]]:
        """What was said since the last page."""
        said, self.said = self.said, []
        return said


class Visits:
    """All visits, by the secret that is in a browser's cookie.

    Args:
        connect: a link with a user and password, None for that of the console's URL.
    """

    def __init__(self, connect: Callable[[str | None, str | None], BrokerLink]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._visits: dict[str, Visit] = {}
        self._common: Broker | None = None
        self._left: list[Broker] = []
        """Of visits that are over, with jobs that are not."""

    def find(self, secret: str) -> Visit | None:
        """The visit of a browser, if it has one that is not over."""
        over = []
        with self._lock:
            now_s = time.monotonic()
            for key, visit in list(self._visits.items()):
                idle = now_s - visit.used_s > IDLE_MAX_S and not visit.broker.jobs.running
                if idle or (visit.broker.link.is_refused and not visit.shared):
                    over.append(self._visits.pop(key))
            found = self._visits.get(secret) if secret else None
            if found is not None:
                found.used_s = now_s
            done = [broker for broker in self._left if not broker.jobs.running]
            self._left = [broker for broker in self._left if broker.jobs.running]
        for visit in over:
            self._end(visit)
        for broker in done:
            broker.close()
        return found

    def begin_common(self) -> tuple[str, Visit]:
        """A visit with the login of the console's URL, or without any.

        Raises:
            JMSSecurityError: brokers want to know who it is.
            JMSError: no broker can be reached, or what it says.
        """
        with self._lock:
            common = self._common
        if common is None:
            common = self._open(None, None)
            with self._lock:
                self._common = self._common or common
                common = self._common
        return self._keep(Visit(common, shared=True))

    def begin(self, user: str, password: str) -> tuple[str, Visit]:
        """A visit of a user, who sees the jobs again that go on since a former one; raises as `begin_common`."""
        broker = self._open(user, password)
        with self._lock:
            for left in self._left:
                if left.user == broker.user and left.jobs.running:
                    broker.jobs = left.jobs
        return self._keep(Visit(broker, shared=False))

    def _open(self, user: str | None, password: str | None) -> Broker:
        link = self._connect(user, password)
        try:
            told: dict[str, Any] = link.request("read", "user")
        except (JMSError, JMSSecurityError):
            link.close()
            raise
        return Broker(link, str(told["user"]), str(told["management"]), user or "")

    def _keep(self, visit: Visit) -> tuple[str, Visit]:
        secret = secrets.token_urlsafe(32)
        over: list[Visit] = []
        with self._lock:
            self._visits[secret] = visit
            counts = Counter(each.whose for each in self._visits.values())
            while not visit.shared and counts[visit.whose] > VISITS_OF_USER_MAX:
                over.append(self._take_oldest_of(visit.whose, secret))
                counts[visit.whose] -= 1
            while len(self._visits) > VISITS_MAX:
                # Who has most of them pays: nobody logs in so often that others are sent away.
                ((whose, _),) = counts.most_common(1)
                over.append(self._take_oldest_of(whose, secret))
                counts[whose] -= 1
        for each in over:
            self._end(each)
        return secret, visit

    def _take_oldest_of(self, whose: tuple[bool, str], kept: str) -> Visit:
        others = [key for key, visit in self._visits.items() if visit.whose == whose and key != kept]
        return self._visits.pop(min(others or [kept], key=self._eviction_order))

    def _eviction_order(self, secret: str) -> tuple[bool, float]:
        """The longest unused first, and those whose jobs go on last."""
        visit = self._visits[secret]
        return visit.broker.jobs.running, visit.used_s

    def end(self, secret: str) -> None:
        """A browser's visit is over; its jobs go on."""
        with self._lock:
            visit = self._visits.pop(secret, None)
        if visit is not None:
            self._end(visit)

    def _end(self, visit: Visit) -> None:
        broker = visit.broker
        if visit.shared:
            return
        if broker.jobs.running_by(broker.link):
            with self._lock:
                self._left.append(broker)
        elif broker.jobs.running:
            # They go by the link of a former visit.
            broker.leave()
        else:
            broker.close()

    def close(self) -> None:
        """All are over."""
        with self._lock:
            visits, self._visits = list(self._visits.values()), {}
            common, self._common = self._common, None
            left, self._left = self._left, []
        for visit in visits:
            if not visit.shared:
                visit.broker.close()
        for broker in [*left, *([common] if common is not None else [])]:
            broker.close()
