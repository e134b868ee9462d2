"""Login at the servers of a replicated log: the options of all commands that ask them."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from legato.cli.options import finite
from legato.cli.output import say

if TYPE_CHECKING:
    from legato.replication.nats import NatsSettings

QUIET_S = 2.0
"""Who waits longer is told so."""

ServersArgument = Annotated[
    str, typer.Argument(metavar="SERVERS", help="nats://host:port of each, with commas.", show_default=False)
]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", help="Seconds to wait for each answer.", metavar="S", min=0.1, callback=finite),
]


def _file_option(name: str, help: str) -> Any:
    return Annotated[Path | None, typer.Option(name, help=help, metavar="FILE", show_default=False)]


_OPTIONS: dict[str, Any] = {
    "user": Annotated[
        str | None, typer.Option("--user", help="The brokers' user.", metavar="NAME", show_default=False)
    ],
    "password_file": _file_option("--password-file", "A file with its password in the first line."),
    "credentials_file": _file_option("--credentials", "A file of nsc, instead of a user."),
    "ca_file": _file_option("--ca", "Certificates of authorities, for TLS."),
    "certificate_file": _file_option("--certificate", "A certificate, if servers want one."),
    "key_file": _file_option("--key", "The key of it."),
    "token_file": _file_option("--token-file", "A file with a token, instead of a user."),
}
"""By the names of the fields of `Login`."""


@dataclass(frozen=True, slots=True)
class Login:
    """What options say of a login at the log's servers."""

    user: str | None
    password_file: Path | None
    credentials_file: Path | None
    ca_file: Path | None
    certificate_file: Path | None
    key_file: Path | None
    token_file: Path | None

    def settings(self, servers: str, group: str) -> NatsSettings:
        """For the log of a group.

        Raises:
            ConfigError: they cannot be used.
        """
        from legato.replication.nats import NatsSettings

        return NatsSettings(
            servers,
            group,
            user=self.user,
            password=None if self.password_file is None else _first_line(self.password_file),
            token=None if self.token_file is None else _first_line(self.token_file),
            credentials_file=self.credentials_file,
            ca_file=self.ca_file,
            certificate_file=self.certificate_file,
            key_file=self.key_file,
        )


def takes_login(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a login, in the place of its parameter `login`, which is a `Login`."""

    @functools.wraps(command)
    def taking(**given: Any) -> None:
        login = Login(**{name: given.pop(name) for name in _OPTIONS})
        with _telling_of_a_wait(given["timeout_s"]):
            command(login=login, **given)

    options = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]
    parameters: list[Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        parameters += options if name == "login" else [parameter]
    # Required ones come before those with a default; Typer lists options in this order, and calls by name.
    taking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    taking.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return taking


@contextmanager
def _telling_of_a_wait(timeout_s: float) -> Iterator[None]:
    """Say on standard error that servers are waited for, once that lasts."""
    with telling_late(lambda: f"waits for the log's servers, at most {timeout_s:g} s for each answer (--timeout)"):
        yield


@contextmanager
def telling_late(words: Callable[[], str]) -> Iterator[None]:
    """Say on standard error what is waited for, once that lasts."""
    telling = threading.Timer(QUIET_S, lambda: say(words(), err=True))
    telling.daemon = True
    telling.start()
    try:
        yield
    finally:
        telling.cancel()


def _first_line(file: Path) -> str:
    from legato.errors import ConfigError
    from legato.server.config.secret_files import refuse_readable

    refuse_readable(file, "The file with a secret")
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0]
    except UnicodeDecodeError:
        raise ConfigError(f"The file with a secret, {file}, is not text in UTF-8.") from None
