"""The users file: who may log in, with which roles, and the keys that their passwords are held against.

It is text, one user a line, written by `legato user` and never in place: a reader sees the old file or the new one.

    legato users 1
    # Keys of users: nobody else may read this file. Change it with `legato user`, then `legato reload`.
    secret: q83v...
    ann: roles=billing,operators SCRAM-SHA-256$50000:...$...:... SCRAM-SHA-512$50000:...$...:...
    end: 1 user
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from legato.errors import ConfigError
from legato.server.config.secret_files import refuse_readable
from legato.server.identity.keys import ITERATIONS_DEFAULT, MECHANISMS, Keys, derive, parse

VERSION = 1
HEADER = "legato users"
NAME_BYTES_MAX = 255
RESERVED = ("anonymous", "token")
_SECRET_BYTES = 32
_FILE_BYTES_MAX = 64 << 20
_COMMENT = "# Keys of users: nobody else may read this file. Change it with `legato user`, then `legato reload`."
_ROLES = "roles="
_FORBIDDEN = set(":,=$#\\")


class User(msgspec.Struct, frozen=True):
    """One user. Without keys it has no password, and logs in with a certificate or a token."""

    name: str
    roles: tuple[str, ...] = ()
    keys: tuple[Keys, ...] = ()


class UsersFile(msgspec.Struct):
    """What is in a users file.

    Attributes:
        secret: from which the salts of users are made that there are not.
    """

    secret: bytes
    users: dict[str, User] = {}


def check_name(name: str, what: str = "user name") -> str:
    """The name, in the form in which names are compared.

    Raises:
        ConfigError: no user, or no role, can have it.
    """
    from scramp.utils import ScramException, saslprep

    try:
        prepared = str(saslprep(name))
    except ScramException:
        prepared = ""
    if (
        not prepared
        or len(prepared.encode(errors="replace")) > NAME_BYTES_MAX
        or not prepared.isprintable()
        or any(character.isspace() or character in _FORBIDDEN for character in prepared)
    ):
        raise ConfigError(
            f"{name[:80]!r} is no {what}: give 1 to {NAME_BYTES_MAX} bytes of printable characters without "
            "spaces and without : , = $ # and backslash."
        )
    if prepared in RESERVED:
        raise ConfigError(f"{name!r} is no {what}: it is a name of the broker's own.")
    return prepared


def check_foreign_name(name: str) -> str:
    """The name of a user that a certificate or a token names, and that need not be in a users file.

    Raises:
        ConfigError: nobody can have it, or it is a name of the broker's own.
    """
    if not name or len(name.encode(errors="replace")) > NAME_BYTES_MAX or not name.isprintable():
        raise ConfigError(f"{name[:80]!r} is no user name: give 1 to {NAME_BYTES_MAX} bytes of printable characters.")
    if name != name.strip():
        raise ConfigError(f"{name!r} is no user name: it begins or ends with a space.")
    if name in RESERVED or name.startswith(("$", "group:")) or name == "*":
        raise ConfigError(f"{name!r} is no user name: it is a name of the broker's own.")
    return name


def make_keys(password: str, iterations: int = ITERATIONS_DEFAULT) -> tuple[Keys, ...]:
    """Keys for a password, for all mechanisms.

    Raises:
        ConfigError: it cannot be a password.
    """
    if not password:
        raise ConfigError("The password is empty.")
    return tuple(derive(mechanism, password, iterations) for mechanism in sorted(MECHANISMS))


def read(path: Path) -> UsersFile:
    """Read a users file.

    Raises:
        ConfigError: it is not there, others may read it, or something in it is wrong; the message says what and where.
    """
    refuse_readable(path, "The users file")
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"There is no users file {path}: make it with legato user add NAME --users-file {path}"
        ) from None
    except OSError as error:
        raise ConfigError(f"Cannot read the users file {path}: {error.strerror}.") from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no users file: it is not text in UTF-8.") from None
    return _parse(path, text)


def _parse(path: Path, text: str) -> UsersFile:
    lines = text.split("\n")
    if not lines[0].startswith(f"{HEADER} "):
        raise ConfigError(f"{path} is no users file: it does not begin with {HEADER!r}.")
    if lines[0] != f"{HEADER} {VERSION}":
        raise ConfigError(
            f"The users file {path} has version {lines[0].removeprefix(HEADER).strip()[:20]!r}; this version of Legato "
            f"reads {VERSION}: use the version that wrote it."
        )
    found: UsersFile | None = None
    for number, line in enumerate(lines[1:], 2):
        if not line or line.startswith("#"):
            continue
        name, colon, rest = line.partition(":")
        try:
            if not colon:
                raise ValueError("it has no colon")
            if name == "end":
                if found is None or rest.split() != _end(found).split() or lines[number:] != [""]:
                    break
                return found
            if name == "secret" and found is None:
                found = UsersFile(_secret(rest), {})
            elif found is None:
                raise ValueError("the secret must come first")
            else:
                user = _user(name, rest)
                if user.name in found.users:
                    raise ValueError(f"{user.name} is there twice")
                found.users[user.name] = user
        except (ValueError, ConfigError) as error:
            raise ConfigError(f"{path}, line {number}: {str(error).rstrip('.')}.") from None
    raise ConfigError(
        f"The users file {path} was cut off: its last line does not say how many users there are. "
        "Put back the whole file, or make a new one with legato user add."
    )


def _end(content: UsersFile) -> str:
    count = len(content.users)
    return f"{count} user" if count == 1 else f"{count} users"


def _secret(text: str) -> bytes:
    secret = base64.b64decode(text.strip(), validate=True)
    if len(secret) < _SECRET_BYTES:
        raise ValueError("the secret is too short")
    return secret


def _user(name: str, rest: str) -> User:
    if check_name(name) != name:
        raise ValueError(f"{name!r} is not in the form in which names are compared")
    roles: tuple[str, ...] = ()
    keys: list[Keys] = []
    for word in rest.split():
        if word.startswith(_ROLES):
            roles = tuple(check_name(role, "role") for role in word.removeprefix(_ROLES).split(",") if role)
        else:
            keys.append(parse(word))
    if len({key.mechanism for key in keys}) != len(keys):
        raise ValueError(f"{name} has keys for one mechanism twice")
    return User(name, roles, tuple(keys))


def _written(content: UsersFile) -> str:
    lines = [f"{HEADER} {VERSION}", _COMMENT, f"secret: {base64.b64encode(content.secret).decode()}"]
    for user in sorted(content.users.values(), key=lambda user: user.name):
        lines.append(" ".join([f"{user.name}:", _ROLES + ",".join(user.roles), *map(str, user.keys)]))
    return "\n".join([*lines, f"end: {_end(content)}", ""])


@contextmanager
def changing(path: Path) -> Iterator[UsersFile]:
    """Change the content of a users file: what the block leaves of it is written, unless it raises.

    Whoever else wants to change the file waits meanwhile. A file that is not there is made.

    Raises:
        ConfigError: it cannot be read or written.
    """
    path = path.resolve()
    try:
        lock = _open_lock(path)
    except OSError as error:
        raise ConfigError(f"Cannot write the users file {path}: {error.strerror}.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = read(path) if path.exists() else UsersFile(secrets.token_bytes(_SECRET_BYTES), {})
        yield content
        try:
            _replace(path, _written(content).encode())
        except OSError as error:
            raise ConfigError(f"Cannot write the users file {path}: {error.strerror}; it is as it was.") from None
    finally:
        os.close(lock)


def _open_lock(path: Path) -> int:
    name, flags = path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CLOEXEC
    try:
        lock = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        # Not made here: it could be a link, by which somebody else has us make a file anywhere.
        return os.open(name, flags)
    # Only a file that we have just made: another could be a link to somebody else's.
    _give_to_owner(lock, path)
    return lock


def _give_to_owner(file: int, path: Path) -> None:
    """What root writes belongs to the owner of the users file, or else of its directory: that is the broker's user."""
    with contextlib.suppress(OSError):
        before = (path if path.exists() else path.parent).stat()
        if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(file, before.st_uid, before.st_gid)


def _replace(path: Path, data: bytes) -> None:
    """Put a file with that content in place of the one at `path`, whose owner keeps it; both survive a power cut."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), stat.S_IRUSR | stat.S_IWUSR)
            _give_to_owner(file.fileno(), path)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
