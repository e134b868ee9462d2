"""`legato user`: add, change, list and remove the users of a users file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from legato.cli.administration import tell
from legato.cli.commands import Commands
from legato.cli.confirmation import DryRunOption, YesOption, confirm_on_terminal
from legato.cli.options import JsonOption
from legato.cli.output import say, say_lines
from legato.errors import ConfigError
from legato.quoting import one_line

if TYPE_CHECKING:
    from legato.server.identity.keys import Keys
    from legato.server.identity.users_file import User, UsersFile

app = Commands(
    name="user",
    help="Add, change, list and remove the users of a broker. The users file holds salted keys, never passwords.",
    epilog="Brokers take a change over with `legato reload`, or SIGHUP.",
)

UserArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.", show_default=False)]
UsersFileOption = Annotated[
    Path | None,
    typer.Option(
        "--users-file",
        envvar="LEGATO_AUTH_USERS_FILE",
        help="The users file, as auth.users_file has it.",
        metavar="FILE",
        show_default=False,
    ),
]
UsersStoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        envvar="LEGATO_STORE_DIRECTORY",
        help="The store's directory, for the users file DIR/users.",
        metavar="DIR",
        show_default=False,
    ),
]
UsersConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="The broker's TOML file, for its users file.", metavar="FILE", show_default=False),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        help="Read the password from the first line of this file, which only you may be able to read.",
        metavar="FILE",
        show_default=False,
    ),
]
IterationsOption = Annotated[
    int | None,
    typer.Option(
        "--iterations",
        help="How much work a login, and each guess, takes: rounds of PBKDF2, from 4096 on (default 50000).",
        metavar="N",
        show_default=False,
    ),
]
RoleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--role", "--roles", help="A role, or several separated by commas; may be repeated.", metavar="ROLE[,ROLE]"
    ),
]


@app.command("add")
def add(
    name: UserArgument,
    role: RoleOption = None,
    password_file: PasswordFileOption = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="The user logs in with a certificate or a token only.")
    ] = False,
    iterations: IterationsOption = None,
    users_file: UsersFileOption = None,
    store: UsersStoreOption = None,
    config: UsersConfigOption = None,
) -> None:
    """Add a user. The password is asked for, or read from standard input, or from a file.

    Examples: legato user add ann --store ./store --roles billing; legato user add bob --users-file /etc/legato/users
    """
    from legato.server.identity.users_file import User, changing, check_name

    name = check_name(name)
    roles = _roles(role)
    file = _file(users_file, store, config, create=True)
    _refuse_present(file, name)
    keys = () if no_password else _keys(_password(name, password_file), iterations)
    with changing(file) as content:
        if name in content.users:
            raise ConfigError(f"There is a user {name!r} already; change the password with legato user passwd {name}.")
        content.users[name] = User(name, roles, keys)
    tell(f"added user {name} to {file}")


@app.command("passwd")
def passwd(
    name: UserArgument,
    password_file: PasswordFileOption = None,
    iterations: IterationsOption = None,
    users_file: UsersFileOption = None,
    store: UsersStoreOption = None,
    config: UsersConfigOption = None,
) -> None:
    """Change a user's password. It is asked for, or read from standard input, or from a file.

    Example: legato user passwd ann --store ./store
    """
    from legato.server.identity.users_file import User, changing, check_name

    name = check_name(name)
    file = _file(users_file, store, config)
    _present(_read(file), name, file)
    keys = _keys(_password(name, password_file), iterations)
    with changing(file) as content:
        content.users[name] = User(name, _present(content, name, file).roles, keys)
    tell(f"changed the password of {name} in {file}")


@app.command("roles")
def roles(
    name: UserArgument,
    role: Annotated[
        list[str] | None, typer.Argument(metavar="[ROLE]...", help="All roles from now on.", show_default=False)
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Take all roles from the user.")] = False,
    users_file: UsersFileOption = None,
    store: UsersStoreOption = None,
    config: UsersConfigOption = None,
) -> None:
    """Show the roles of a user, or give it others instead.

    Examples: legato user roles ann --store ./store; legato user roles ann billing operators --store ./store
    """
    from legato.server.identity.users_file import User, changing, check_name

    name = check_name(name)
    file = _file(users_file, store, config)
    if none and role:
        raise ConfigError("Give roles, or --none.")
    if not none and not role:
        say_lines("\n".join(_present(_read(file), name, file).roles) or f"{name} has no roles")
        return
    given = _roles(role)
    with changing(file) as content:
        content.users[name] = User(name, given, _present(content, name, file).keys)
    tell(f"{name} has the roles {', '.join(given)}" if given else f"{name} has no roles")


@app.command("list")
def users(
    as_json: JsonOption = False,
    users_file: UsersFileOption = None,
    store: UsersStoreOption = None,
    config: UsersConfigOption = None,
) -> None:
    """List users with their roles.

    Example: legato user list --store ./store
    """
    file = _file(users_file, store, config)
    content = _read(file)
    found = sorted(content.users.values(), key=lambda user: user.name)
    if as_json:
        say(json.dumps([{"name": user.name, "roles": user.roles, "password": bool(user.keys)} for user in found]))
        return
    if not found:
        say(f"there are no users in {file}")
    width = max((len(user.name) for user in found), default=0)
    for user in found:
        without = "" if user.keys else "  (no password)"
        say(f"{user.name:{width}}  {', '.join(user.roles) or 'no roles'}{without}")


@app.command("remove")
def remove(
    name: UserArgument,
    users_file: UsersFileOption = None,
    store: UsersStoreOption = None,
    config: UsersConfigOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Remove a user. On a terminal it asks first.

    Example: legato user remove bob --store ./store
    """
    from legato.server.identity.users_file import changing, check_name

    name = check_name(name)
    file = _file(users_file, store, config)
    _present(_read(file), name, file)
    if not confirm_on_terminal(lambda: f"remove user {name} from {file}", yes=yes, dry_run=dry_run):
        return
    with changing(file) as content:
        del content.users[_present(content, name, file).name]
    tell(f"removed user {name} from {file}")


def _file(users_file: Path | None, store: Path | None, config: Path | None, *, create: bool = False) -> Path:
    """The users file that the options name.

    Args:
        create: make the directory of a store that there is not yet.
    """
    if users_file is not None:
        return users_file
    if config is not None:
        from legato.server.config import configuration

        loaded = configuration.load(config, store=store)
        if loaded.auth.users_file:
            return Path(loaded.auth.users_file)
        store = loaded.store_directory
    if store is None:
        raise ConfigError("Which users file? Give --store DIR for that of a store, or --users-file FILE.")
    from legato.server.config.secret_files import make_private
    from legato.server.identity.users import USERS_NAME

    if create or store.is_dir():
        is_new = not store.exists()
        make_private(store, "the store")
        if is_new:
            tell(f"made {store}, a new store")
    return store / USERS_NAME


def _read(file: Path) -> UsersFile:
    from legato.server.identity import users_file

    return users_file.read(file)


def _refuse_present(file: Path, name: str) -> None:
    """Nobody types a password for a user that is there already."""
    if file.exists() and name in _read(file).users:
        raise ConfigError(f"There is a user {name!r} already; change the password with legato user passwd {name}.")


def _present(content: UsersFile, name: str, file: Path) -> User:
    if name not in content.users:
        raise ConfigError(f"There is no user {name!r} in {file}; legato user list shows all.")
    return content.users[name]


def _roles(given: list[str] | None) -> tuple[str, ...]:
    from legato.server.identity.users_file import check_name

    names = [part.strip() for text in given or () for part in text.split(",") if part.strip()]
    return tuple(dict.fromkeys(check_name(role, "role") for role in names))


def _password(name: str, file: Path | None) -> str:
    """The password: of a file, of standard input, or typed twice."""
    if file is not None:
        from legato.server.config.secret_files import refuse_readable

        refuse_readable(file, "The password file")
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ConfigError(f"The password file {file} is not text in UTF-8.") from None
        except OSError as error:
            raise ConfigError(f"Cannot read the password file {file}: {error.strerror}.") from None
    elif sys.stdin.isatty():
        return str(typer.prompt(one_line(f"Password of {name}"), hide_input=True, confirmation_prompt=True, err=True))
    else:
        try:
            text = sys.stdin.buffer.readline().decode()
        except UnicodeDecodeError:
            raise ConfigError("The password is not text in UTF-8.") from None
    return text.split("\n")[0].removesuffix("\r")


def _keys(password: str, iterations: int | None) -> tuple[Keys, ...]:
    from legato.server.identity.keys import ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN
    from legato.server.identity.users_file import make_keys

    count = ITERATIONS_DEFAULT if iterations is None else iterations
    if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
        raise ConfigError(f"--iterations is a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}.")
    return make_keys(password, count)
