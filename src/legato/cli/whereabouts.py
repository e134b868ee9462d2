"""Whereabouts of brokers, for commands that looked for one where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from legato.cli.options import STORE_DEFAULT
from legato.errors import JMSError

UNREACHABLE = "No broker can be reached"
"""How the error of the client begins; `legato.client` is imported only where a connection is made."""
_OF_URL = {
    "DEFAULT": "That is the default address: name another one with --url amqp://HOST:PORT (amqps:// for TLS), or as "
    "LEGATO_URL in the environment.",
    "ENVIRONMENT": "The address is from LEGATO_URL; --url names another one.",
}
_EVERYWHERE = ("", "0.0.0.0", "[::]", "::")


def with_whereabouts(error: JMSError, parameters: dict[str, Any], *, url_given_by: str) -> JMSError:
    """The error that no broker is where one was looked for, with where one may be; other errors as they are.

    Args:
        parameters: of the command: `url`, and `store` if it has one.
        url_given_by: `ENVIRONMENT` or `DEFAULT`; anything else is an option of the command.
    """
    text = str(error)
    if not text.startswith(UNREACHABLE) or "url" not in parameters:
        return error
    given = parameters.get("store")
    try:
        of_store = _of_store(Path(given or STORE_DEFAULT), str(parameters["url"]), members_shown=given is not None)
    except OSError:
        of_store = ""
    if not of_store and url_given_by == "DEFAULT":
        of_store = f"legato serve --store ./{STORE_DEFAULT} starts one there."
    sentences = [text, _OF_URL.get(url_given_by, ""), of_store]
    return JMSError(" ".join(filter(None, sentences)), code=error.code, linked=error.linked)


def _of_store(store: Path, url: str, *, members_shown: bool) -> str:
    """What a store on this machine says of its primary.

    Raises:
        OSError: we may not look.
    """
    from legato.ha.lock import LOCK_NAME, StoreLock
    from legato.ha.members import list_members
    from legato.ha.roles import Role

    if not (store / LOCK_NAME).is_file():
        return ""
    called = f"./{store}" if store == STORE_DEFAULT else str(store)
    more = "" if members_shown else f" legato status --store {called} says more."
    members = list_members(store)
    for member in members:
        if member.role == Role.PRIMARY and member.listen:
            if _reachable(member.listen) in url:
                if member.tls is not url.startswith("amqps:"):
                    return f"The process {member.pid} serves the store {called} there, {_spoken(member.tls)}."
                return f"The process {member.pid} serves the store {called} there, and does not answer.{more}"
            scheme = "amqps" if member.tls else "amqp"
            return (
                f"The primary of the store {called} is at {member.listen}: add --url "
                f"{scheme}://{_reachable(member.listen)}"
            )
    if members:
        return f"The store {called} has no primary at the moment.{more}"
    holder = StoreLock(store).holder()
    last = f" (the last one was at {holder.listen})" if holder is not None and holder.listen else ""
    return f"No broker serves the store {called} now{last}: legato serve --store {called} starts one."


def _spoken(tls: bool) -> str:
    return "with TLS: amqps://, not amqp://" if tls else "without TLS: amqp://, not amqps://"


def _reachable(listen: str) -> str:
    """An address to connect to, of one to listen on."""
    host, _, port = listen.rpartition(":")
    return f"localhost:{port}" if host in _EVERYWHERE else listen
