"""`legato switchover`: make a backup take over from the primary."""

import time
from typing import Any

from legato.cli.management import request
from legato.cli.options import URL_DEFAULT, JsonOption, UrlOption
from legato.cli.output import say, say_json
from legato.cli.status import ask
from legato.errors import JMSError
from legato.quoting import quoted

WAIT_S = 30.0
_RETRY_S = 0.02


def switchover(url: UrlOption = URL_DEFAULT, as_json: JsonOption = False) -> None:
    """Make a backup take over from the primary, to update or move a broker. The old primary becomes a backup.

    Nothing that was confirmed is lost. Clients that name both brokers reconnect by themselves.

    Example: legato switchover --url amqp://localhost:5672,localhost:5673
    """
    from legato.client.management import url_of_group

    group = _group_in(ask(url))
    # A URL may name brokers of other groups, which have epochs of their own.
    url = url_of_group(url, group)
    began = request(url, "switchover", "broker")
    primary = _await_successor(url, group, began["backups"], began["epoch"])
    if primary["listen"] not in began["backups"]:
        raise JMSError(
            f"No backup took over: {quoted(primary['listen'])} serves again, in epoch {primary['epoch']}. "
            f"The log of the backup at {', '.join(map(quoted, began['backups']))} says why."
        )
    if as_json:
        say_json({key: primary[key] for key in ("epoch", "listen", "container_id", "takeover_ms")})
    else:
        say(f"epoch {primary['epoch']} began on {quoted(primary['listen'])}, within {primary['takeover_ms']:.0f} ms")


def _group_in(status: dict[str, Any]) -> str:
    """The group of brokers that a status is of; empty if there are none."""
    return str((status.get("group") or {}).get("name", ""))


def _await_successor(url: str, group: str, backups: list[str], epoch: int) -> dict[str, Any]:
    """The status of whoever of a group serves after `epoch`.

    Raises:
        JMSError: nobody does.
    """
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for place in _places(url, backups):
            try:
                status = ask(place)
            except JMSError:
                continue
            if status["epoch"] > epoch and _group_in(status) == group:
                return status
        time.sleep(_RETRY_S)
    raise JMSError(f"No backup has taken over within {WAIT_S:g} s: look at its log, and at legato status.")


def _places(url: str, backups: list[str]) -> list[str]:
    """Possible places of the successor: the given hosts, and the addresses of backups."""
    place, _, options = url.partition("?")
    scheme, _, rest = place.partition("://")
    login, at, hosts = rest.rpartition("@")
    query = "&".join(filter(None, (options, "connect_attempts=1")))
    return [f"{scheme}://{login}{at}{host}?{query}" for host in (hosts, *backups)]
