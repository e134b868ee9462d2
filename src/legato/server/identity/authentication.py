"""Authentication: which mechanisms a connection is offered, who it turns out to be, and whether it may stay."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import quote

from legato.amqp.engine.mechanisms import Anonymous, Check, Failure, Mechanism, Success
from legato.amqp.engine.sasl import SaslServer
from legato.clock import Clock
from legato.ha.heartbeat_connection import BACKUP_USER
from legato.limits import SASL_FRAME_BYTES_MAX, TOKEN_FRAME_BYTES_MAX
from legato.quoting import quoted
from legato.server.config.configuration import Config
from legato.server.identity.back_off import BackOff
from legato.server.identity.certificates import takes_certificates, trusted, user_of
from legato.server.identity.exposure import admits_anonymous, has_logins
from legato.server.identity.keys import ITERATIONS_MIN, Keys, derive
from legato.server.identity.mechanisms import Bearer, CheckedPlain, External, Proof, Scram
from legato.server.identity.origin import Origin
from legato.server.identity.tokens import TokenRefused, Tokens, TokensUnavailable
from legato.server.identity.users import Users
from legato.server.shell import Peer

log = logging.getLogger("legato.authentication")

CHECKS_WAITING_MAX = 10_000
"""Passwords that wait to be looked at."""


class Authentication:
    """The logins of one epoch.

    Args:
        backup_token: the password of `BACKUP_USER`.
    """

    def __init__(self, config: Config, users: Users, backup_token: str, clock: Clock) -> None:
        self._config = config
        self.users = self._earlier = users
        self._clock = clock
        self._backup_token = backup_token
        self._backup_keys: dict[str, Keys] = {}
        self._anonymous = admits_anonymous(config, users)
        self._back_off, self._backs_off_as = self._new_back_off(), config.auth.failed_logins
        self._tokens = Tokens(config.auth.jwt) if config.auth.jwt.issuer else None
        self._tokens_as = config.auth.jwt
        self._same_issuer = True
        self._trust = self._earlier_trust = trusted(config.tls)
        """What decides whose certificates are taken."""
        self._pools: dict[bool, ThreadPoolExecutor] = {}
        self._checking = 0

    def _new_back_off(self) -> BackOff:
        section = self._config.auth.failed_logins
        return BackOff(section.delay_s, section.most, section.for_s)

    def replace(self, config: Config, users: Users) -> None:
        """From now on these settings and users hold."""
        self._config = config
        if config.auth.failed_logins != self._backs_off_as:
            self._back_off, self._backs_off_as = self._new_back_off(), config.auth.failed_logins
        self._same_issuer = config.auth.jwt == self._tokens_as
        if not self._same_issuer:
            self._tokens_as = config.auth.jwt
            self._tokens = Tokens(config.auth.jwt) if config.auth.jwt.issuer else None
        self._earlier, self.users = self.users, users
        self._earlier_trust, self._trust = self._trust, trusted(config.tls)
        self._anonymous = admits_anonymous(config, users)

    def still_admits(self, peer: Peer) -> bool:
        """Whether a peer that logged in before the users were read again may stay."""
        if peer.user is None or peer.user == BACKUP_USER:
            return True
        if peer.user == Anonymous.USER:
            return self._anonymous
        proof = peer.proof
        if proof.by_password:
            return self.users is self._earlier or self.users.same_keys(self._earlier, peer.user)
        if self._is_another(peer.user) is not None:
            return False
        if proof.expires_s:
            return self._same_issuer
        return self._trust == self._earlier_trust and peer.user == self._external_user(peer.origin)

    # -- the exchange --------------------------------------------------------------------------------------------

    def new_sasl(self, origin: Origin) -> SaslServer:
        """The negotiation that a new connection begins with."""
        return SaslServer(
            anonymous=self._anonymous,
            mechanisms=self._offered(origin),
            frame_bytes_max=TOKEN_FRAME_BYTES_MAX if self._tokens is not None else SASL_FRAME_BYTES_MAX,
        )

    def _offered(self, origin: Origin) -> dict[str, Callable[[], Mechanism]]:
        if self._config.tls.client_ca and self._config.tls.client_certificates == "required" and not origin.certificate:
            return {"SCRAM-SHA-256": lambda: Scram("SCRAM-SHA-256", self._keys_of_backup, self._blocks_at(origin))}
        offered: dict[str, Callable[[], Mechanism]] = {}
        if origin.certificate is not None and takes_certificates(self._config):
            offered["EXTERNAL"] = lambda: External(self._external_user(origin), self._is_another)
        if has_logins(self._config, self.users):
            blocks = self._blocks_at(origin)
            offered["SCRAM-SHA-512"] = lambda: Scram("SCRAM-SHA-512", self._keys, blocks)
            offered["SCRAM-SHA-256"] = lambda: Scram("SCRAM-SHA-256", self._keys, blocks)
            if origin.secure or origin.loopback:
                verify_token = self._verify_token if self._tokens is not None else None
                if verify_token is not None:
                    offered["XOAUTH2"] = lambda: Bearer(self._verify_token)
                offered["PLAIN"] = lambda: CheckedPlain(self._verify, blocks, verify_token)
        wanted = self._config.auth.mechanisms
        chosen = {name: make for name, make in offered.items() if not wanted or name in wanted}
        if offered and not chosen.keys() & {"SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"}:
            # Backups log in too, and have nothing but a password.
            chosen["SCRAM-SHA-256"] = lambda: Scram("SCRAM-SHA-256", self._keys_of_backup, self._blocks_at(origin))
        return chosen

    def _blocks_at(self, origin: Origin) -> Callable[[str], bool]:
        # The password of backups is a random text: guesses find nothing, and must not keep a backup out.
        return lambda user: user != BACKUP_USER and self._back_off.is_blocked(origin.address, user, self._now_s())

    def _keys(self, user: str, mechanism: str) -> tuple[Keys, bool]:
        if user != BACKUP_USER:
            return self.users.keys(user, mechanism)
        found = self._backup_keys.get(mechanism)
        if found is None:
            # Of a random text of 256 bits, which nobody guesses, however fast that could be tried.
            found = self._backup_keys[mechanism] = derive(mechanism, self._backup_token, ITERATIONS_MIN)
        return found, True

    def _keys_of_backup(self, user: str, mechanism: str) -> tuple[Keys, bool]:
        """For connections that cannot log in with a password: a backup has nothing else."""
        keys, real = self._keys(user, mechanism)
        if user != BACKUP_USER:
            log.warning("! users do not log in with a password here: see tls.client_certificates and auth.mechanisms")
        return keys, real and user == BACKUP_USER

    def _verify(self, user: str, password: str) -> Success | Failure:
        """Check a password; in a thread beside the loop."""
        if user == BACKUP_USER:
            right = self._keys(user, "SCRAM-SHA-256")[0].belongs_to(password)
        else:
            right = self.users.has_password(user, password)
        return Success(user) if right else Failure(f"wrong user name or password for {quoted(user)}", user=user)

    def _verify_token(self, token: str) -> Success | Failure:
        """Check a token; in a thread beside the loop."""
        tokens = self._tokens
        if tokens is None:
            return Failure("tokens are not taken any more")
        try:
            found = tokens.check(token)
        except TokenRefused as error:
            return Failure(str(error))
        except TokensUnavailable as error:
            return Failure(str(error), temporary=True)
        if (another := self._is_another(found.user)) is not None:
            return another
        proof = Proof(by_password=False, groups=found.groups, expires_s=found.expires_s)
        return Success(found.user, proved=proof)

    def _is_another(self, user: str) -> Failure | None:
        """A failure if a user that a certificate or a token names is called like one that has a password here.

        They need not be the same, and one would have what is the other's: its subscriptions, producers and roles.
        """
        known = self.users.find(user)
        if known is None or not known.keys:
            return None
        why = "has a password: only a user without one (--no-password) is who a certificate or a token names"
        return Failure(f"{quoted(user)} {why}", user=user)

    def _external_user(self, origin: Origin) -> str | None:
        if origin.certificate is None or not takes_certificates(self._config):
            return None
        return user_of(origin.certificate, self._config.auth.external_user)

    def run(self, check: Check, done: Callable[[Success | Failure], None]) -> None:
        """Have a check run beside the loop, and tell its result in the loop.

        However many there are, some of the processors' time is left for everything else.
        """
        if self._checking >= CHECKS_WAITING_MAX:
            done(Failure("too many logins wait to be looked at", temporary=True))
            return
        pool = self._pools.get(check.slow)
        if pool is None:
            pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2), "tokens" if check.slow else "logins")
            self._pools[check.slow] = pool
        self._checking += 1
        loop = asyncio.get_running_loop()

        def tell(future: Future[Success | Failure]) -> None:
            self._checking -= 1
            error = future.exception()
            if error is not None:
                log.error("! a login could not be checked: %r", error)
                done(Failure("the login could not be checked", temporary=True))
            else:
                refused = check.unless() if check.unless is not None else None
                done(refused or future.result())

        def hand_over(future: Future[Success | Failure]) -> None:
            if not future.cancelled() and not loop.is_closed():
                loop.call_soon_threadsafe(tell, future)

        pool.submit(check.work).add_done_callback(hand_over)

    def stop(self) -> None:
        """Nobody logs in any more."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    # -- the result ----------------------------------------------------------------------------------------------

    def realm_of(self, user: str) -> str:
        """What the names begin with that a user gives to what is its own: container ids, producers, sinks.

        Without users they are as they are given. No two users have a realm in common: a slash in a name is quoted.
        """
        return f"{quote(user, safe='@.')}/" if has_logins(self._config, self.users) else ""

    def failed(self, origin: Origin, failure: Failure) -> float:
        """A login was refused; for how many seconds the answer is put off."""
        if failure.temporary:
            return self._back_off.delay_s
        return self._back_off.fail(origin.address, failure.user, self._now_s())

    def succeeded(self, origin: Origin, user: str) -> None:
        """A peer logged in."""
        self._back_off.succeed(origin.address, user, self._now_s())

    def _now_s(self) -> float:
        return self._clock.monotonic_ms() / 1000
