"""Accounts of what peers take: of each user, of each address of origin, and of all together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection

from legato.core.refusals import FULL, Refusal
from legato.server.config.bounds import Bounds, Timeouts, UserBounds, bounds_of
from legato.server.config.configuration import LimitsSection
from legato.server.identity.back_off import origin_of
from legato.server.limits.token_bucket import TokenBucket

ACCOUNTS_MAX = 10_000
"""With so many, those are forgotten that nobody uses; one whose rates are used up only if there is no other way."""
TELL_AGAIN_S = 60.0
_MINUTE_S = 60.0
NO_TIMEOUTS = Timeouts()
_SHOWN_MAX = 80


class LimitExceeded(Refusal):
    """A peer asks for more than it may have; the message names the limit."""

    condition = FULL


class Account:
    """What one user, one address of origin, or all peers have.

    Args:
        whose: for errors.
        setting: the section of the configuration that has its bounds.
    """

    __slots__ = (
        "bounds",
        "connections",
        "creations",
        "half_open",
        "held_bytes",
        "links",
        "messages",
        "sessions",
        "setting",
        "told",
        "whose",
    )

    def __init__(self, whose: str, setting: str, bounds: Bounds) -> None:
        self.whose = whose
        self.setting = setting
        self.bounds = bounds
        self.connections = 0
        self.half_open = 0
        self.sessions = 0
        self.links = 0
        self.held_bytes = 0
        self.creations = TokenBucket(_MINUTE_S)
        self.messages = TokenBucket(1.0)
        self.told: dict[str, float] = {}
        """When the log was told last that it reached a limit."""

    @property
    def is_idle(self) -> bool:
        """Whether no connection counts for it."""
        return not (self.connections or self.half_open)

    def is_fresh(self, now_s: float) -> bool:
        """Whether it is as a new one would be."""
        creations_per_s, messages_per_s = self.bounds.creations_per_minute / _MINUTE_S, self.bounds.messages_per_s
        created = bool(creations_per_s) and not self.creations.is_full(creations_per_s, now_s)
        sent = bool(messages_per_s) and not self.messages.is_full(messages_per_s, now_s)
        return self.is_idle and not created and not sent


class Accounts:
    """All accounts of a broker.

    Args:
        section: the bounds, as they are configured.
        clock_s: a clock that never goes back.
        tell: is given a line for the log when an account reaches a limit.

    Attributes:
        refusals: how often something was refused.
        memory_bytes: what all connections hold in memory, about.
    """

    def __init__(self, section: LimitsSection, clock_s: Callable[[], float], tell: Callable[[str], None]) -> None:
        self.refusals = 0
        self.memory_bytes = 0
        self.total = Account("the broker", "limits.total", bounds_of(section.total))
        self._clock_s = clock_s
        self._tell = tell
        self._origins: dict[str, Account] = {}
        self._users: dict[str, Account] = {}
        self.replace(section)

    def replace(self, section: LimitsSection) -> None:
        """From now on these bounds hold; what there is stays, though it may be more. Those of a user hold when that
        connects again."""
        self.total.bounds = bounds_of(section.total)
        self._origin = bounds_of(section.origin)
        self._user_bounds = UserBounds(bounds_of(section.user), section.users, section.roles)
        for account in self._origins.values():
            account.bounds = self._origin

    def arrive(self, address: str) -> Holdings:
        """A peer connected from an address; it is half open until it has opened.

        Raises:
            LimitExceeded: too many are.
        """
        origin = origin_of(address)
        account = self._of(
            self._origins, origin, lambda: Account(f"the address {origin}", "limits.origin", self._origin)
        )
        holdings = Holdings(self, [self.total, account])
        self.demand(holdings.accounts, "half_open", "half-open connections", 1)
        for each in holdings.accounts:
            each.half_open += 1
        holdings.half_open = True
        return holdings

    def of_user(self, user: str, roles: Collection[str]) -> Account:
        """The account of a user who has these roles."""
        bounds = self._user_bounds.of(user, roles)
        account = self._of(self._users, user, lambda: Account(f"the user {user[:_SHOWN_MAX]!a}", "limits.user", bounds))
        account.bounds = bounds
        return account

    def _of(self, accounts: dict[str, Account], key: str, new: Callable[[], Account]) -> Account:
        account = accounts.get(key)
        if account is None:
            if len(accounts) >= ACCOUNTS_MAX:
                self._forget(accounts)
            account = accounts[key] = new()
        return account

    def _forget(self, accounts: dict[str, Account]) -> None:
        now_s = self._clock_s()
        fresh = [key for key, account in accounts.items() if account.is_fresh(now_s)]
        idle = fresh or [key for key, account in accounts.items() if account.is_idle]
        for key in idle[: max(ACCOUNTS_MAX // 2, len(fresh))]:
            del accounts[key]

    def demand(self, accounts: Collection[Account], field: str, what: str, count: int) -> None:
        """See that each of some accounts may have so many more of something.

        Raises:
            LimitExceeded: one may not.
        """
        for account in accounts:
            bound = getattr(account.bounds, field)
            if bound and getattr(account, field) + count > bound:
                raise self.exceeded(account, field, f"{account.whose} may have {bound} {what}")

    def exceeded(self, account: Account, field: str, sentence: str) -> LimitExceeded:
        """The refusal for an account that has reached a limit; the log is told of it once in a while."""
        self.refusals += 1
        sentence = f"{sentence[0].upper()}{sentence[1:]} ({account.setting}.{field})."
        now_s = self._clock_s()
        if now_s - account.told.get(field, -TELL_AGAIN_S) >= TELL_AGAIN_S:
            account.told[field] = now_s
            self._tell(sentence)
        return LimitExceeded(sentence)

    def now_s(self) -> float:
        """The time."""
        return self._clock_s()


class Holdings:
    """What one connection has, as part of some accounts; without an account it may have anything."""

    __slots__ = ("_all", "accounts", "half_open", "held_bytes", "links", "memory_bytes", "open", "sessions")

    def __init__(self, all_accounts: Accounts | None = None, accounts: list[Account] | None = None) -> None:
        self._all = all_accounts
        self.accounts = accounts or []
        self.half_open = False
        self.open = False
        self.sessions: set[object] = set()
        self.links = 0
        self.held_bytes = 0
        self.memory_bytes = 0

    def begin(self, user: str, roles: Collection[str]) -> None:
        """It has opened, for a user, or for nobody if that is empty.

        Raises:
            LimitExceeded: there are too many connections.
        """
        if self._all is None or self.open:
            return
        accounts = [*self.accounts, self._all.of_user(user, roles)] if user else self.accounts
        self._all.demand(accounts, "connections", "connections", 1)
        self._leave_half_open()
        if user:
            accounts[-1].held_bytes += self.held_bytes
        self.accounts = accounts
        self.open = True
        for account in accounts:
            account.connections += 1

    def exempt(self) -> None:
        """It has opened, and counts as no connection of anybody's."""
        self._leave_half_open()

    def _leave_half_open(self) -> None:
        if self.half_open:
            self.half_open = False
            for account in self.accounts:
                account.half_open -= 1

    def begin_session(self, session: object) -> None:
        """A session begins.

        Raises:
            LimitExceeded: there are too many.
        """
        if self._all is not None:
            self._all.demand(self.accounts, "sessions", "sessions", 1)
            self.sessions.add(session)
            for account in self.accounts:
                account.sessions += 1

    def end_session(self, session: object) -> None:
        """A session ended; one that could not begin does not count."""
        if session in self.sessions:
            self.sessions.discard(session)
            for account in self.accounts:
                account.sessions -= 1

    def demand_link(self) -> None:
        """See that there may be another link.

        Raises:
            LimitExceeded: there are too many.
        """
        if self._all is not None:
            self._all.demand(self.accounts, "links", "links", 1)

    def count_links(self, links: int) -> None:
        """It has so many links."""
        more, self.links = links - self.links, links
        if more:
            for account in self.accounts:
                account.links += more

    def create(self) -> None:
        """Something is created for it that outlives its link.

        Raises:
            LimitExceeded: it was too much within a minute.
        """
        if self._all is None:
            return
        now_s = self._all.now_s()
        for account in self.accounts:
            bound = account.bounds.creations_per_minute
            if bound and not account.creations.try_take(bound / _MINUTE_S, now_s):
                sentence = f"{account.whose} may create {bound} queues, topics and subscriptions a minute"
                raise self._all.exceeded(account, "creations_per_minute", sentence)

    @property
    def timeouts(self) -> Timeouts:
        """Those of its user."""
        bounds = self.accounts[-1].bounds if self.accounts else None
        if bounds is None:
            return NO_TIMEOUTS
        return Timeouts(bounds.acknowledgement_timeout_s, bounds.transaction_timeout_s)

    def hold(self, held_bytes: int, besides_bytes: int = 0) -> None:
        """It holds so many bytes in the broker's memory.

        Args:
            besides_bytes: for what is not bounded in bytes: links, deliveries that are not settled and the like.

        Raises:
            LimitExceeded: that is too much; they count all the same.
        """
        if self._all is not None:
            self._all.memory_bytes += held_bytes + besides_bytes - self.memory_bytes
            self.memory_bytes = held_bytes + besides_bytes
        more, self.held_bytes = held_bytes - self.held_bytes, held_bytes
        if not more:
            return
        for account in self.accounts:
            account.held_bytes += more
        if more > 0 and self._all is not None:
            what = "bytes in unfinished messages, open transactions and unread answers"
            self._all.demand(self.accounts, "held_bytes", what, 0)

    def spend(self, messages: int) -> float:
        """It sent messages, or outcomes; returns for how many seconds no more is to be taken from it."""
        if self._all is None:
            return 0.0
        now_s = self._all.now_s()
        wait_s = 0.0
        for account in self.accounts:
            rate = account.bounds.messages_per_s
            if rate:
                wait_s = max(wait_s, account.messages.take(messages, rate, now_s))
        return wait_s

    def let_go(self) -> None:
        """Its sessions and links are gone; its socket may not be, and what that holds."""
        self.count_links(0)
        for session in list(self.sessions):
            self.end_session(session)

    def give_way(self) -> None:
        """Another connection takes its place: it is none any more."""
        for account in self.accounts:
            account.connections -= self.open
        self._leave_half_open()
        self.open = False

    def end(self) -> None:
        """It is gone, and so is what it had."""
        self.let_go()
        self.give_way()
        more, self.held_bytes = -self.held_bytes, 0
        for account in self.accounts:
            account.held_bytes += more
        if self._all is not None:
            self._all.memory_bytes -= self.memory_bytes
        self.memory_bytes = 0
        self._all, self.accounts = None, []
