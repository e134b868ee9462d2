"""`legato status`: the broker's status, and the processes that share its store."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from legato.cli.options import URL_DEFAULT, JsonOption, StoreOption, UrlOption
from legato.cli.output import say_json

ANSWER_WAIT_S = 5.0
PRIMARY, HANDING_OVER = "primary", "handing over"
"""As `legato.ha.roles.Role` spells them, which is imported where it is needed only."""


def status(
    url: UrlOption = URL_DEFAULT,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the primary's epoch and the depth of its queues; with --store also the processes that share the store.

    Examples: legato status; legato status --store ./store --json
    """
    answer = ask(url)
    if store:
        answer = {"members": members_of(store)} | answer
        show_one_primary(answer)
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
    claims = [each for each in (answer, *answer["members"]) if each["role"] == PRIMARY]
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
        member["since"] = datetime.fromtimestamp(member["since_us"] / 1e6, UTC).isoformat(timespec="milliseconds")
    return members
