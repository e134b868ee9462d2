"""Inputs of a few bytes that take seconds or gigabytes to be looked at, and errors that nobody expects."""

from __future__ import annotations

import contextlib
import time

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, ValueBody, decode_message, encode_message
from legato.amqp.codec.values import UInt
from legato.amqp.engine.outcomes import ACCEPTED
from legato.errors import ProtocolError
from tests.attacks.ground import SASL_HEADER, Ground, holds
from tests.attacks.register import attack
from tests.integration.server.test_bombs import sections_with
from tests.support.amqp_peer import text
from tests.support.raw import (
    DETACH,
    SOURCE,
    Raw,
    credit,
    frame,
    framed,
    opening,
    receiving,
    selecting,
    sending,
    sent,
    terminus,
)
from tests.unit.amqp.test_bombs import array, bomb, described

A_FLOW, A_DISPOSITION = b"\x00\x53\x13", b"\x00\x53\x15"


@attack(1, "endless credit on $status", quick=True)
def endless_credit(ground: Ground) -> None:
    """Credit of 2^31-1, on every address of the broker's own, again and again."""
    for address in (names.STATUS_ADDRESS, names.HEARTBEAT_ADDRESS, names.MANAGEMENT_ADDRESS):
        hostile = ground.logged_in()
        hostile.send(
            opening(ground.container()), *[receiving(n, address) + credit(n, (1 << 31) - 1) for n in range(20)]
        )
    status = ground.logged_in()
    status.send(opening(ground.container()), receiving(0, names.STATUS_ADDRESS), credit(0, (1 << 31) - 1))
    heard = status.hear_until(b'"role"')
    holds(heard.count(b'"role"') == 1, "one flow has more than one answer")
    ground.leave()


@attack(2, "an array bomb before the login", quick=True)
def bomb_before_login(ground: Ground) -> None:
    """Frames of SASL of 4 to 16 KB with arrays of elements that have no bytes; a hundred connections of each."""
    init = b"\x00\x53\x41"
    for body in (init + bomb(400), init + bomb(1500), bomb(1500), init + described(5000)):
        for _ in range(25):
            hostile = ground.raw()
            with contextlib.suppress(OSError):
                hostile.send(SASL_HEADER, framed(body, kind=1))
                hostile.socket.shutdown(1)
                hostile.hear_all()
            hostile.close()


@attack(3, "array bombs in every section of messages and requests")
def bomb_after_login(ground: Ground) -> None:
    """Eight places where the broker looks, to a queue, the relay, the coordinator and the management address."""
    for address in ("play.bombed", names.MANAGEMENT_ADDRESS, None):
        for value in (bomb(200), bomb(1000, 4000), described(5000)):
            hostile = ground.logged_in()
            hostile.send(opening(ground.container()), sending(0, address))
            hostile.hear_until(A_FLOW)
            messages = list(sections_with(value))
            with contextlib.suppress(OSError):
                hostile.send(*[sent(0, number, message) for number, message in enumerate(messages)])
                hostile.send(frame(DETACH, [UInt(0), True]))
            hostile.hear_until(b"\x00\x53\x16", b"\x00\x53\x18")
    for message in sections_with(bomb(1000, 4000)):
        began = time.process_time()
        with contextlib.suppress(ProtocolError):
            decode_message(message)
        holds(time.process_time() - began < 2, "a client that reads a message of 15 KB works for seconds")


@attack(7, "a number of 32,000 digits in a selector", quick=True)
def long_number(ground: Ground) -> None:
    """Quadratic in the lexer: eight seconds for each attach."""
    hostile = ground.logged_in()
    hostile.send(opening(ground.container()))
    for number, digits in enumerate((4000, 32_000, 32_000, 80_000)):
        source = terminus(SOURCE, "play.q", None, None, None, None, None, None, selecting("x = 0x" + "f" * digits))
        hostile.send(receiving(number, "", source=source))
    hostile.send(receiving(9, "play.q"))
    holds(b"r9" in hostile.hear_until(b"r9", b"\x00\x53\x18"), "the connection did not outlive a selector")


@attack(8, "LIKE patterns over long properties")
def long_like(ground: Ground) -> None:
    """`'%aaa...b%'` over 500,000 letters, for 500 messages."""
    sender = ground.peer()
    link = sender.sender("play.like")
    for _ in range(20):
        message = encode_message(header=Header(), application_properties={"a": "a" * 500_000}, body=DataBody(b"x"))
        holds(sender.send(link, message) == ACCEPTED, "the message was refused")
    for pattern in ("%" + "a" * 4000 + "b%", "%" + "a_" * 400 + "b%", "%a" * 400 + "b", "_" * 3000 + "%b"):
        hostile = ground.logged_in()
        text_ = f"a LIKE '{pattern}'"
        source = terminus(SOURCE, "play.like", None, None, None, None, None, None, selecting(text_))
        hostile.send(opening(ground.container()), receiving(0, "", source=source), credit(0, 100))
        hostile.hear_until(b"\x00\x53\x12")
    time.sleep(1)


@attack(9, "attaches of a hundred bytes with arrays of 60,000 nulls", rss_growth_max_bytes=64 << 20)
def engine_memory(ground: Ground) -> None:
    """Megabytes of the engine's memory for each link."""
    for count in (60_000, 256):
        many = Raw(array(0x40, count))
        source = terminus(SOURCE, "play.q", None, None, None, None, None, None, many)
        for attaches in (
            [receiving(number, "play.q", properties=many) for number in range(500)],
            [receiving(number, "play.q", source=source) for number in range(500)],
        ):
            hostile = ground.logged_in()
            with contextlib.suppress(OSError):
                hostile.send(opening(ground.container()), *attaches)
            hostile.hear_until(b"amqp:resource-limit-exceeded", b"r499")


@attack(11, "address patterns with many #", quick=True)
def wide_patterns(ground: Ground) -> None:
    """A pattern of k words over a name of w words took k times w steps."""
    manager = ground.manager()
    name = "play." + "w." * 120 + "w"
    holds(manager.ask("CREATE", name)[0] in (200, 403), "no answer")
    for pattern in ("#." * 127 + "x", "#.*." * 60 + "#", "#." * 100_000 + "x"):
        for _ in range(5):
            holds(manager.ask("QUERY", match=pattern)[0] in (200, 400), "no answer")


@attack(17, "nesting, numbers and names that nothing was prepared for", quick=True)
def unexpected(ground: Ground) -> None:
    """What raised RecursionError, ValueError and OSError: each is refused, and the peer stays."""
    manager = ground.manager()
    peer = ground.peer()
    link = peer.sender("play.deep")
    deep = described(20_000)
    for section in (b"\x00\x53\x77", b"\x00\x53\x72", b"\x00\x53\x74"):
        peer.send(link, section + deep)
    arguments: list[dict[str, object]] = [
        {"operation": "QUERY", "offset": (1 << 63) - 1},
        {"operation": "MOVE", "name": "play.deep", "to": "play.x", "properties": "[" * 100_000},
        {"operation": "PUBLISH", "type": "stage", "name": "n" * 300, "batch": 1, "stages": "x"},
        {"operation": "PUBLISH", "type": "stage", "name": "n", "batch": 1, "stages": ",".join(["x"] * 20_000)},
        {"operation": "QUERY", "body": ValueBody("[" * 100_000)},
        {"operation": "QUERY", "body": ValueBody('{"offset": ' + "9" * 5000 + "}")},
    ]
    for said in arguments:
        status = manager.ask(**said)[0]  # type: ignore[arg-type]
        holds(status in (400, 403, 404, 503), f"{said['operation']} was answered with {status}")
    holds(peer.send(link, text(b"still here")) == ACCEPTED, "the peer was cut off")
