"""Editor of a dead letter's body: receives the old message and sends the new one in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from legato.administration.dead_letters import Letter, is_flow, still_there
from legato.administration.exact_json import read_json, write_json
from legato.administration.letter_names import selector_of
from legato.client import BytesMessage, Connection, ConnectionFactory, Message, Queue, TextMessage
from legato.client.failover.uri import short_wait
from legato.client.management import request
from legato.client.messages.properties import DELIVERY_COUNT, Properties
from legato.errors import JMSError, MessageFormatError

EDITED_BY = "legato_edited_by"
EDITED_FROM = "legato_edited_from"
FLOW_MESSAGE_ID = "legato_message_id"
DUPLICATE_ID = "_AMQ_DUPL_ID"
_DIGITS_MAX = 9
LEFT_OUT = (DUPLICATE_ID, DELIVERY_COUNT)
"""Properties that an edited message has not: it is another one."""
SELECTED_WAIT_S = 5.0


def with_changes(body: Any, changes: list[str]) -> Any:
    """The body with some of its values replaced.

    Args:
        changes: `PATH=VALUE` each: names and numbers with dots between them, and JSON, or else a text.

    Raises:
        JMSError: a path leads nowhere.
    """
    for change in changes:
        path, _, text = change.partition("=")
        try:
            value = read_json(text)
        except ValueError:
            value = text
        body = _replaced(body, path.split("."), value, path)
    return body


def _replaced(body: Any, path: list[str], value: Any, whole: str) -> Any:
    if not path:
        return value
    first, *rest = path
    if isinstance(body, dict):
        if rest and first not in body:
            raise JMSError(
                f"{whole} leads nowhere: there is no {first!r} among {', '.join(map(str, body)) or 'nothing'}."
            )
        return {**body, first: _replaced(body.get(first), rest, value, whole)}
    # Python refuses to read a number of thousands of digits.
    if isinstance(body, list) and first.isdecimal() and len(first) <= _DIGITS_MAX and int(first) < len(body):
        changed = list(body)
        changed[int(first)] = _replaced(body[int(first)], rest, value, whole)
        return changed
    raise JMSError(f"{whole} leads nowhere: at {first!r} there is no object or list that has it.")


def replace(url: str, letter: Letter, body: Any, by: str) -> str:
    """Put a dead letter with another body in its place; returns its new id.

    Receiving the one and sending the other are one transaction. A flow's message gets a new id of the flow's, too: an
    inbox that knows the old one must not drop what is no longer the same.

    Args:
        body: as JSON has it; a text stays one.
        by: who did it.

    Raises:
        JMSError: it is gone, held by somebody or in a paused queue, or the new body is no message of a flow where the
            old one was.
    """
    with ConnectionFactory(url, **short_wait(url)).create_connection() as connection:
        connection.start()
        return replace_in(connection, partial(request, url), letter, body, by)


def replace_in(connection: Connection, ask: Callable[..., Any], letter: Letter, body: Any, by: str) -> str:
    """As `replace`, by a connection that was started.

    Args:
        ask: makes a request to the broker, as `legato.client.management.request` does, by another connection.
    """
    flow = is_flow(letter)
    if flow:
        body = {**body, "message_id": uuid.uuid4().hex} if isinstance(body, dict) else body
        _check_flow(body)
    with connection.create_session(transacted=True) as session:
        selector = selector_of([letter])
        old = session.create_consumer(Queue(letter.queue), selector, prefetch=1).receive(timeout_s=SELECTED_WAIT_S)
        if old is None:
            raise JMSError(_why_not_received(connection, ask, letter))
        # Who edited what is on record before anything changes, and nothing is that was not edited.
        ask("edit", "queue", letter.queue, message_id=letter.called)
        said: dict[str, Any] = {EDITED_BY: by, EDITED_FROM: letter.called}
        if flow:
            said[FLOW_MESSAGE_ID] = body["message_id"]
        new = _changed(old, body, said)
        session.create_producer(Queue(letter.queue)).send(new, priority=old.priority)
        session.commit()
        return new.message_id or ""


def _why_not_received(connection: Connection, ask: Callable[..., Any], letter: Letter) -> str:
    if not still_there(connection, letter.queue, [letter]):
        return f"{letter.called} is no longer in {letter.queue}."
    if _is_paused(ask, letter.queue):
        return f"{letter.called} cannot be edited while {letter.queue} is paused: resume it first. Nothing was changed."
    return (
        f"{letter.called} is in {letter.queue}, but somebody else holds it: another edit, or a consumer. "
        "Nothing was changed."
    )


def _is_paused(ask: Callable[..., Any], queue: str) -> bool:
    """Whether a queue delivers nothing; False if that cannot be asked."""
    try:
        return bool(ask("read", "queue", queue)["paused"])
    except JMSError:
        return False


def _changed(old: Message, body: Any, said: dict[str, Any]) -> Message:
    """A message like a received one, with another body, and further properties besides those that it has."""
    text = body if isinstance(body, str) and not _is_json_text(old) else write_json(body)
    new: Message = BytesMessage(text.encode()) if isinstance(old, BytesMessage) else TextMessage(text)
    new.correlation_id, new.type, new.reply_to = old.correlation_id, old.type, old.reply_to
    # Who reads it goes by these: Celery takes no task without its content type.
    new.content_type, new.content_encoding = old.content_type, old.content_encoding
    # Not one by one: what the broker said of its death has names that applications may not set.
    kept = {name: value for name, value in old.properties._values.items() if name not in LEFT_OUT}
    new._properties = Properties(kept | said)
    return new


def _is_json_text(message: Message) -> bool:
    """Whether the body is a text as JSON writes it, in quotes."""
    try:
        return isinstance(read_json(message.body or ""), str)
    except ValueError:
        return False


def _check_flow(body: Any) -> None:
    from legato.flows.model.envelope import decode

    try:
        decode(write_json(body))
    except MessageFormatError as error:
        raise JMSError(f"The edited body is no longer a message of a flow: {error}") from error
