"""The management address: requests and answers are messages (in the manner of AMQP Management 1.0).

A request says what it wants in its application properties: `operation`, `type` (`queue`, `topic`, `subscription` or
`broker`), `name`, and arguments. The answer goes to its `reply-to` with its correlation id, or else its message id; it
has `statusCode` and `statusDescription`, and JSON in its body. What an operation changed is durable before its answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import AmqpMessage, Properties, ValueBody, decode_message, encode_message
from legato.amqp.codec.types import Int
from legato.core.address_prefixes import DURABLE_PREFIX, VOLATILE_PREFIX
from legato.core.broker import Broker
from legato.core.refusals import FULL, Refusal
from legato.errors import ConfigError, ProtocolError, StoreError
from legato.quoting import sentence
from legato.server.access.permissions import SEND, Denied
from legato.server.links.link_roles import ManagementReplies
from legato.server.links.nodes import Nodes
from legato.server.links.refused import INTERNAL_ERROR, NOT_ALLOWED, NOT_FOUND, Refused
from legato.server.management.operations import Operations
from legato.server.management.requests import Pending, Rejection, Settled, Spread
from legato.server.shell import Peer, Shell

log = logging.getLogger("legato.management")

_STATUS = {
    INTERNAL_ERROR: 500,
    NOT_FOUND: 404,
    NOT_ALLOWED: 403,
    Denied.condition: 403,
    "amqp:resource-locked": 409,
    "amqp:precondition-failed": 409,
    "amqp:invalid-field": 400,
    FULL: 429,
}
_CREATING = ("create", "open")
"""Operations that make a node; so does a move to where there is none."""
_BAD_REQUEST = 400
_OK = 200
_UNAVAILABLE = 503
_TAG = b"answer"
ANSWER_BYTES_IN_ONE_GO = 256 << 10
"""Then is seen whether who asked reads them."""
_QUESTION_BYTES = 1 << 10
"""Of a request that is not answered yet, besides its own bytes."""


class _Question:
    """A request that is to be answered: where, and what it holds until then.

    Its own bytes count too: the work on it may keep what they say.
    """

    __slots__ = ("_answered", "_held_bytes", "correlation", "peer", "reply_to")

    def __init__(self, peer: Peer, message: AmqpMessage, size: int, answered: Callable[[], None]) -> None:
        asked = message.properties
        self.peer = peer
        self.reply_to = asked.reply_to
        self.correlation = asked.message_id if asked.correlation_id is None else asked.correlation_id
        self._answered = answered
        self._held_bytes = size + _QUESTION_BYTES
        peer.unread_bytes += self._held_bytes

    def end(self) -> None:
        """It is answered."""
        self.peer.unread_bytes -= self._held_bytes
        self._held_bytes = 0
        answered, self._answered = self._answered, _nothing
        answered()


class Management:
    """Answers requests.

    Args:
        spread: does work in steps, some in each turn of the loop.
    """

    def __init__(self, shell: Shell, broker: Broker, nodes: Nodes, operations: Operations, spread: Spread) -> None:
        self._shell = shell
        self._spread = spread
        self._broker = broker
        self._nodes = nodes
        self._operations = operations

    def request(self, peer: Peer, data: bytes, answered: Callable[[], None]) -> None:
        """A message came to the management address.

        Args:
            answered: is called once when there is an answer, or when it is known that there is none.
        """
        try:
            message = decode_message(data)
        except ProtocolError as error:
            log.warning("! %s sent a request that cannot be read: %s", peer.name, sentence(error))
            answered()
            return
        question = _Question(peer, message, len(data), answered)
        arguments: dict[str, Any] = {}
        try:
            arguments = _arguments_of(message)
            if self._creates(arguments):
                peer.holdings.create()
            outcome = self._operations.perform(arguments, peer.rights, peer.realm, peer.holdings)
        except (Refused, Refusal) as error:
            self._record(peer, arguments, "denied" if isinstance(error, Denied) else "refused", str(error))
            self._answer(question, _STATUS.get(error.condition, _BAD_REQUEST), str(error), {})
            return
        except (Rejection, ConfigError) as error:
            self._record(peer, arguments, "refused", str(error))
            self._answer(question, getattr(error, "status", _BAD_REQUEST), str(error), {})
            return
        except StoreError as error:
            log.error("! a request of %s was not met: %s", peer.name, sentence(error))
            self._record(peer, arguments, "refused", sentence(error))
            why = f"The broker cannot do this now: {sentence(error)}."
            self._answer(question, _STATUS[INTERNAL_ERROR], why, {})
            return
        self._record(peer, arguments, "allowed")
        if isinstance(outcome, Settled):
            make = outcome.make
            self._shell.when_settled(peer, lambda error: self._tell_settled(question, make, error))
        else:
            self._tell(question, outcome)

    def _tell_settled(self, question: _Question, make: Callable[[], Any], error: StoreError | None) -> None:
        if error is not None:
            log.warning("! a request for what other processes read was not met: %s", sentence(error))
            self._answer(question, _UNAVAILABLE, "The store cannot be read by other processes now.", {})
            return
        try:
            outcome = make()
        except (Refused, Refusal) as refusal:
            self._answer(question, _STATUS.get(refusal.condition, _BAD_REQUEST), str(refusal), {})
        else:
            self._tell(question, outcome)

    def _tell(self, question: _Question, outcome: Any) -> None:
        if isinstance(outcome, Pending):
            outcome.done = lambda result: self._answer(question, _OK, "OK", result)
            outcome.failed = lambda why: self._answer(question, _UNAVAILABLE, why, {})
            outcome.is_awaited = lambda: not question.peer.ended
        else:
            self._answer(question, _OK, "OK", outcome)

    def _creates(self, arguments: dict[str, Any]) -> bool:
        operation, to = str(arguments.get("operation")).lower(), arguments.get("to")
        if operation == "move" and isinstance(to, str) and not to.startswith((DURABLE_PREFIX, VOLATILE_PREFIX)):
            return self._broker.directory.lookup(to) is None
        return operation in _CREATING

    def _record(self, peer: Peer, arguments: dict[str, Any], decision: str, reason: str = "") -> None:
        self._shell.audit.say(
            "management",
            peer,
            decision,
            operation=arguments.get("operation"),
            type=arguments.get("type"),
            object=arguments.get("name"),
            to=arguments.get("to"),
            message_id=arguments.get("message_id"),
            reason=reason,
        )

    def _answer(self, question: _Question, status: int, description: str, result: Any) -> None:
        question.end()
        peer, reply_to = question.peer, question.reply_to
        try:
            answer = encode_message(
                header=Header(),
                properties=Properties(to=reply_to, correlation_id=question.correlation),
                application_properties={"statusCode": Int(status), "statusDescription": description},
                body=ValueBody(msgspec.json.encode(result).decode()),
            )
        except ValueError as error:
            log.warning("! the answer to %s cannot be written: %s", peer.name, sentence(error))
            return
        port = _replies_of(peer, reply_to)
        if port is not None:
            self._shell.when_durable(peer, lambda: self._reply(port, answer))
        elif reply_to:
            try:
                self._broker.publisher.publish(
                    self._nodes.find(reply_to, (), peer.rights, SEND, peer.holdings), answer, "", None
                )
            except (Refused, Refusal) as error:
                log.warning("! the answer to %s cannot be sent: %s", peer.name, sentence(error))

    def _reply(self, port: ManagementReplies, answer: bytes) -> None:
        port.wait(answer)
        self.flow(port)

    def flow(self, port: ManagementReplies) -> None:
        """Send the answers that there is credit for, as far as the peer reads; a link that is gone takes nothing."""
        link, peer = port.link, port.peer
        self._shell.touch(peer)
        while port.waiting and link.credit > 0:
            if peer.paused:
                # It goes on when the socket takes more.
                return
            if port.sent_bytes >= ANSWER_BYTES_IN_ONE_GO:
                self._go_on_later(port)
                return
            answer = port.next()
            port.sent_bytes += len(answer)
            link.send(answer, _TAG, None, settled=True)
        if link.draining:
            link.drained()

    def _go_on_later(self, port: ManagementReplies) -> None:
        if not port.goes_on:
            port.goes_on = True
            self._spread(self._go_on(port), lambda why: None, lambda: not port.peer.ended)

    def _go_on(self, port: ManagementReplies) -> Iterator[None]:
        """Write what was sent, to see whether the socket takes more."""
        port.peer.flush()
        port.sent_bytes, port.goes_on = 0, False
        self.flow(port)
        yield


def _nothing() -> None:
    """Who asked has heard that already."""


def _replies_of(peer: Peer, address: str | None) -> ManagementReplies | None:
    """Link on which `peer` receives answers sent to `address`, or its only one if it names none."""
    ports = [link.context for link in peer.links if isinstance(link.context, ManagementReplies)]
    return next((port for port in ports if not address or port.address == address), None)


def _arguments_of(message: AmqpMessage) -> dict[str, Any]:
    """The application properties, and the body if it is a map or JSON."""
    arguments: dict[str, Any] = {str(key): value for key, value in message.application_properties.items()}
    value = message.body.value if isinstance(message.body, ValueBody) else None
    if isinstance(value, str) and value.strip():
        try:
            value = msgspec.json.decode(str(value))  # a symbol is none of Python's own strings
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise Rejection("The body of a request is a map, or JSON text that is not nested without end.") from None
    if isinstance(value, dict):
        arguments |= {str(key): item for key, item in value.items()}
    return arguments
