"""`legato status`: the broker's status, and the processes that share its store."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from legato.cli.options import URL_DEFAULT, JsonOption, StoreOption, UrlOption
from legato.cli.output import say_json
from legato.errors import ConfigError

ANSWER_WAIT_S = 5.0
PRIMARY, HANDING_OVER = "primary", "handing over"
"""As `legato.ha.roles.Role` spells them, which is imported where it is needed only."""


def status(
    url: UrlOption = URL_DEFAULT,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the primary's epoch and the depth of its queues; with --store also the processes that share the store.

    With --store the processes are shown even if no broker answers: those that hang or were stopped too.

    Examples: legato status; legato status --store ./store --json
    """
    from legato.errors import JMSError

    if store is not None and not store.is_dir():
        raise ConfigError(f"There is no directory {store}: --store names the directory that legato serve --store has.")
    failure: JMSError | None = None
    try:
        answer = ask(url)
    except JMSError as error:
        if not store:
            raise
        failure, answer = error, {"error": str(error)}
    if store:
        answer = {"members": members_of(store)} | answer
        show_one_primary(answer)
    show(answer, as_json=as_json)
    if failure is not None:
        raise failure


def show(answer: dict[str, Any], *, as_json: bool) -> None:
    """Print a status."""
    if as_json:
        say_json(answer)
        return
    from legato.cli.rendering import print_status

    print_status(answer)


def ask(url: str) -> dict[str, Any]:
    """The status of the broker that serves `url`."""
    from legato.amqp.names import STATUS_ADDRESS
    from legato.client import BytesMessage, ConnectionFactory
    from legato.client.failover.uri import short_wait
    from legato.errors import JMSError

    with (
        ConnectionFactory(url, **short_wait(url)).create_connection() as connection,
        connection.create_session() as session,
    ):
        consumer = session.create_consumer(session.create_queue(STATUS_ADDRESS))
        connection.start()
        message = consumer.receive(timeout_s=ANSWER_WAIT_S)
    if message is None:
        raise JMSError(f"The broker at {url} did not answer within {ANSWER_WAIT_S:g} s.")
    assert isinstance(message, BytesMessage)
    answer: dict[str, Any] = json.loads(message.body)
    return answer


def show_one_primary(answer: dict[str, Any]) -> None:
    """A switchover between asking the broker and reading of the members leaves two that say so: that of the lower epoch
    is handing over."""
    claims = [each for each in (answer, *answer["members"]) if each.get("role") == PRIMARY]
    latest = max((each["epoch"] for each in claims), default=0)
    for each in claims:
        if each["epoch"] < latest:
            each["role"] = HANDING_OVER


def members_of(store: Path) -> list[dict[str, Any]]:
    """The processes that registered with a store directory."""
    import msgspec

    from legato.ha.members import list_members

    members: list[dict[str, Any]] = msgspec.to_builtins(list_members(store))
    for member in members:
        member["stopped"] = is_stopped(member["pid"])
        member["since"] = datetime.fromtimestamp(member["since_us"] / 1e6, UTC).isoformat(timespec="milliseconds")
    return members


def is_stopped(pid: int) -> bool:
    """Whether a process of this machine is stopped (SIGSTOP, a debugger)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")
