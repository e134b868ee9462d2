"""Bearer tokens of OAuth 2.0: JSON web tokens, checked against the keys that their issuer publishes."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from legato.errors import ConfigError
from legato.quoting import quoted, sentence
from legato.server.config.configuration import JwtSection
from legato.server.identity.fetching import Budget, fetch
from legato.server.identity.origin import is_loopback
from legato.server.identity.users_file import check_foreign_name

log = logging.getLogger("legato.tokens")

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""All that need a private key to sign; never `none`, and never one whose key is a shared secret."""
KEYS_KEPT_S = 300.0
"""Then they are fetched again, so that one that was withdrawn is forgotten."""
FETCH_AGAIN_S = 5.0
"""A token with a key that nobody knows has keys fetched at most so often."""
FETCH_TIMEOUT_S = 10.0
"""For all of a fetch: connections, headers and documents. Other logins with tokens wait for it."""
FETCH_BYTES_MAX = 2 << 20
_BEGIN = "eyJ"
"""Of every JSON web token: the beginning of an object in base 64."""


class Identity(msgspec.Struct, frozen=True):
    """Whom a token stands for, and until when."""

    user: str
    groups: tuple[str, ...]
    expires_s: float
    """Since 1970."""


class TokenRefused(Exception):
    """The token is not taken; the message says why, for our log."""


class TokensUnavailable(Exception):
    """Whether the token can be taken is not known: its issuer's keys cannot be fetched."""


def looks_like_token(text: str) -> bool:
    """Whether a password is a token: it comes so from clients that speak nothing but PLAIN."""
    return text.startswith(_BEGIN) and text.count(".") == 2


class Tokens:
    """Checks tokens. To be used beside the event loop: keys may have to be fetched.

    Raises:
        ConfigError: the settings cannot be used.
    """

    def __init__(self, section: JwtSection, now_s: Callable[[], float] = time.time) -> None:
        try:
            import jwt
        except ModuleNotFoundError:
            raise ConfigError("[auth.jwt] needs the package PyJWT: pip install 'legato[oauth]'.") from None
        if not section.issuer or not section.audience:
            raise ConfigError("[auth.jwt] needs issuer and audience: tokens for others must not be taken.")
        wrong = next((name for name in section.algorithms if name not in ALGORITHMS), None)
        if wrong is not None:
            raise ConfigError(f"auth.jwt.algorithms has {wrong!r}; there are {', '.join(ALGORITHMS)}.")
        for url in filter(None, (section.jwks, "" if section.jwks else section.issuer)):
            _check_url(url)
        self._jwt = jwt
        self._section = section
        self._now_s = now_s
        self._guard = threading.Lock()
        self._keys: dict[str | None, Any] = {}
        self._fetched_s = float("-inf")
        self._tried_s = float("-inf")

    def check(self, token: str) -> Identity:
        """Whom a token stands for.

        Raises:
            TokenRefused: nobody that may log in with it.
            TokensUnavailable: its issuer's keys cannot be fetched now.
        """
        jwt, section = self._jwt, self._section
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in section.algorithms:
                raise TokenRefused(f"a token is signed with {header.get('alg')!r:.40}")
            claims = jwt.decode(
                token,
                self._key(header.get("kid")).key,
                algorithms=[header["alg"]],
                issuer=section.issuer,
                audience=section.audience,
                leeway=section.leeway_s,
                options={"require": ["exp", "iss", "aud"]},
            )
            user = claims.get(section.user_claim)
            if not isinstance(user, str):
                raise TokenRefused(f"a token has no text as its claim {section.user_claim}")
            user = check_foreign_name(user)
            return Identity(user, _groups(claims, section.roles_claim), float(claims["exp"]) + section.leeway_s)
        except (jwt.PyJWTError, ConfigError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise TokenRefused(f"a token is not taken: {str(error) or type(error).__name__:.200}") from None

    def _key(self, key_id: Any) -> Any:
        if key_id is not None and not isinstance(key_id, str):
            raise TokenRefused("a token names its key in no text")
        with self._guard:
            now_s = time.monotonic()
            old = now_s - self._fetched_s > KEYS_KEPT_S
            if (old or self._find(key_id) is None) and now_s - self._tried_s > FETCH_AGAIN_S:
                self._tried_s = now_s
                try:
                    self._keys = self._fetch()
                    self._fetched_s = now_s
                except Exception as error:
                    # Whatever comes from there: a document may be anything.
                    log.warning("! the keys of %s cannot be fetched: %s", quoted(self._section.issuer), sentence(error))
            found = self._find(key_id)
            if found is not None:
                return found
            if not self._keys:
                raise TokensUnavailable(f"the keys of {self._section.issuer} cannot be fetched")
        raise TokenRefused("a token is signed with a key that its issuer does not publish")

    def _find(self, key_id: str | None) -> Any:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _fetch(self) -> dict[str | None, Any]:
        section, budget = self._section, Budget(FETCH_TIMEOUT_S, FETCH_BYTES_MAX)
        place = section.jwks
        if not place:
            told = json.loads(_read(section.issuer.rstrip("/") + "/.well-known/openid-configuration", section, budget))
            if not isinstance(told, dict):
                raise ValueError("its openid-configuration is no object")
            if told.get("issuer") != section.issuer or not isinstance(told.get("jwks_uri"), str):
                raise ValueError("its openid-configuration is another issuer's, or names no keys")
            place = told["jwks_uri"]
            _check_url(place)
            if urlsplit(place).scheme not in ("https", "http"):
                raise ValueError("its openid-configuration names keys that are in no place of its own")
        keys = self._jwt.PyJWKSet.from_json(_read(place, section, budget).decode()).keys
        return {key.key_id: key for key in keys if key.public_key_use in (None, "sig")}


def _check_url(url: str) -> None:
    """Raises ConfigError unless the keys of a token come from a file, or by a way that nobody can change them on."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file", "https") or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return
    raise ConfigError(f"auth.jwt: {url!r} must be an https:// address, or a file: whoever can change keys can log in.")


def _read(place: str, section: JwtSection, budget: Budget) -> bytes:
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        return Path(parts.path).read_bytes()
    return fetch(place, budget, section.tls_ca)


def _groups(claims: dict[str, Any], path: str) -> tuple[str, ...]:
    """The roles in a claim, whose name may be a path with dots: a list, or a text with spaces as `scope` is."""
    value: Any = claims.get(path)
    if value is None:
        value = claims
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, list):
        return ()
    return tuple(dict.fromkeys(str(name) for name in value if isinstance(name, str)))
