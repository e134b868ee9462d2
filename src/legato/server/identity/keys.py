"""Stored keys: what a broker keeps of a password, so that it can check a login and nobody can log in with it.

They are those of SCRAM (RFC 5802, RFC 7677), spelt as PostgreSQL spells them:
`SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`, all but the number in base 64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

import msgspec

from legato.errors import ConfigError

MECHANISMS = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256"}
"""The hash function of each."""
PLAIN_MECHANISM = "SCRAM-SHA-256"
"""Whose keys a password that came with PLAIN is held against."""
ITERATIONS_DEFAULT = 50_000
"""Some 10 ms of a processor for SHA-256: for each login, and for each guess of whoever got hold of the keys."""
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 10_000_000
SALT_BYTES = 16
PASSWORD_CHARACTERS_MAX = 1024


class Keys(msgspec.Struct, frozen=True):
    """The keys of one user for one mechanism."""

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        """Without the keys: they have no place in a log."""
        return f"Keys({self.mechanism}, {self.iterations} iterations)"

    def __str__(self) -> str:
        """As a users file has it."""
        parts = (self.salt, self.stored_key, self.server_key)
        salt, stored, server = (base64.b64encode(part).decode() for part in parts)
        return f"{self.mechanism}${self.iterations}:{salt}${stored}:{server}"

    def belongs_to(self, password: str) -> bool:
        """Whether they were made from this password; takes as long whatever the password is."""
        try:
            derived = derive(self.mechanism, password, self.iterations, self.salt)
        except ConfigError:
            derived = derive(self.mechanism, "-", self.iterations, self.salt)
            return bool(hmac.compare_digest(derived.stored_key, bytes(len(derived.stored_key))))
        return hmac.compare_digest(derived.stored_key, self.stored_key)


def derive(mechanism: str, password: str, iterations: int = ITERATIONS_DEFAULT, salt: bytes | None = None) -> Keys:
    """The keys for a password, with a salt of their own unless one is given.

    Raises:
        ConfigError: the password has characters that no password may have, or there are too many.
    """
    import scramp

    if len(password) > PASSWORD_CHARACTERS_MAX:
        raise ConfigError(f"A password has at most {PASSWORD_CHARACTERS_MAX} characters.")
    salt = salt or secrets.token_bytes(SALT_BYTES)
    try:
        made = scramp.ScramMechanism(mechanism).make_auth_info(password, iteration_count=iterations, salt=salt)
    except scramp.ScramException as error:
        raise ConfigError(f"The password cannot be used: {error}.") from None
    return Keys(mechanism, iterations, salt, made[1], made[2])


def fake(mechanism: str, iterations: int, secret: bytes, name: str) -> Keys:
    """Keys for a user that there is not: always the same ones for a name, and no password's."""

    def part(purpose: str, size: int) -> bytes:
        told = f"{mechanism}\0{purpose}\0{name}".encode(errors="surrogatepass")
        return hmac.digest(secret, told, "sha512")[:size]

    size = hashlib.new(MECHANISMS[mechanism]).digest_size
    return Keys(mechanism, iterations, part("salt", SALT_BYTES), part("stored", size), part("server", size))


def parse(text: str) -> Keys:
    """Keys as a users file has them.

    Raises:
        ValueError: they are none.
    """
    try:
        mechanism, count, keys = text.split("$")
        iterations_text, salt_text = count.split(":")
        stored_text, server_text = keys.split(":")
    except ValueError:
        raise ValueError(
            "there is a word that is neither roles=... nor keys (MECHANISM$ITERATIONS:SALT$KEY:KEY), as if the line "
            "was cut off: put back the whole file, or remove the line and add the user anew with legato user add"
        ) from None
    if mechanism not in MECHANISMS or not iterations_text.isdecimal():
        raise ValueError("the mechanism is unknown")
    iterations = int(iterations_text)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError("the number of iterations is out of range")
    try:
        salt, stored, server = (base64.b64decode(part, validate=True) for part in (salt_text, stored_text, server_text))
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    size = hashlib.new(MECHANISMS[mechanism]).digest_size
    if len(salt) < 12 or len(stored) != size or len(server) != size:
        raise ValueError("a key or the salt has a wrong length")
    return Keys(mechanism, iterations, salt, stored, server)
