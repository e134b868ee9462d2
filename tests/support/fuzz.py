"""Mutated inputs for a broker, drawn from seeds: `python -m tests.support.fuzz --inputs 50000`.

A real broker gets them, whose turns of the loop are measured; a good client's round trips go on beside them. Each input
is one connection: frames of a conversation, a negotiation of SASL, messages, or requests to the management address, in
which bytes and fields were changed. `--only SEED` sends a single one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from legato.amqp import names
from legato.amqp.codec.coordinator import encode_declare, encode_discharge
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, ValueBody, decode_message, encode_message
from legato.amqp.codec.values import Described, Symbol, UByte, UInt, ULong, encode_value
from legato.amqp.engine.outcomes import ACCEPTED
from legato.errors import ProtocolError
from legato.server.identity.keys import ITERATIONS_MIN
from legato.server.identity.users_file import User, changing, make_keys
from tests.support.amqp_peer import AmqpPeer, data_of, text
from tests.support.measured_broker import MeasuredServer
from tests.support.raw import (
    ATTACH,
    BEGIN,
    CLOSE,
    COORDINATOR,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    SOURCE,
    TARGET,
    TRANSFER,
    Raw,
    RawPeer,
    credit,
    encoded,
    frame,
    framed,
    opening,
    receiving,
    selecting,
    sending,
    terminus,
)

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
A_FLOW, OUTCOME = b"\x00\x53\x13", b"\x00\x53\x44"
PASSWORD = "x"
SETTINGS = """
[audit]
file = "{directory}/audit.jsonl"
[auth]
failed_logins = {{ delay_s = 0.0, most = 1000000 }}
[[role]]
name = "everything"
members = ["wide"]
allow = [{{ on = "#", may = ["send", "receive", "browse", "create", "delete", "bulk"] }}]
management = "operate"
[[role]]
name = "little"
members = ["narrow"]
allow = [{{ on = "fuzz", may = ["send"] }}, {{ on = "topic://fuzz", may = ["receive", "create"] }}]
[[role]]
name = "good"
members = ["good"]
allow = [{{ on = "good", may = ["send", "receive", "create"] }}]
management = "view"
"""
ROUND_TRIP_EVERY = 50
MESSAGES_PER_INPUT = 8
RSS_GROWTH_MAX_BYTES = 128 << 20
"""Of a run: queues and messages that inputs make stay."""

NUMBERS = (0, 1, 2, 7, 127, 128, 255, 256, 4096, 65_535, 1 << 31, (1 << 32) - 1)
SELECTORS = (
    "a = 1",
    "x = 0x" + "f" * 3000,
    "x = 0x" + "f" * 30_000,
    "a LIKE '%" + "a" * 4000 + "b%'",
    "a LIKE '%" + "a" * 16_000 + "b%'",
    "a LIKE '%" + "a_" * 400 + "b%'",
    "a IN (" + ",".join(["'x'"] * 900) + ")",
    "NOT " * 200 + "a",
    "JMSPriority > 3 AND JMSType = 'x'",
    "a BETWEEN -1 AND 9223372036854775808",
    "'",
)
ADDRESSES = (
    "fuzz",
    "fuzz.other",
    "topic://fuzz",
    "$status",
    "$management",
    "$heartbeat",
    "",
    "\x00",
    "a." * 100 + "b",
    "w." * 100 + "w",
    "temp-queue://x",
    "subscription:///x",
    "queue://fuzz",
)
LONG_NAME = "w." * 20_000 + "w"


class Fuzz:
    """One input, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.negotiates = False
        """Whether it begins with a negotiation of its own."""

    def draw(self, *, users: bool = False) -> list[bytes]:
        """What is written to a connection; between two parts the broker gives credit.

        Args:
            users: whether the broker has users: then there are logins of all kinds, too.
        """
        kinds: tuple[Callable[[], list[bytes]], ...] = (
            self.conversation,
            self.conversation,
            self.receivers,
            self.selecting,
            self.sasl,
            self.messages,
            self.requests,
        )
        kind = self.random.choice((*kinds, self.logins) if users else kinds)
        self.negotiates = kind in (self.sasl, self.logins)
        return kind()

    # -- kinds

    def logins(self) -> list[bytes]:
        """Negotiations with the mechanisms of brokers with users, of which parts were changed."""
        random = self.random
        name = random.choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "EXTERNAL", "XOAUTH2", "ANONYMOUS"))
        user = random.choice(
            ("wide", "narrow", "nobody", "$backup", "anonymous", "", "\u00e9", "a" * 2000, "a\0b", "a,b")
        )
        responses = (
            f"\0{user}\0x",
            f"{user}\0{user}\0x",
            f"n,,n={user},r=nonce",
            f"p=tls-unique,,n={user},r=nonce",
            f"n,a=wide,n={user},r=nonce",
            f"user={user}\1auth=Bearer eyJ.eyJ.x\1\1",
            "",
        )
        proofs = ("c=biws,r=nonce,p=AAAA", "c=biws,r=noncex,p=" + "A" * 43 + "=", "", "e=x", "c=" + "A" * 3000)
        frames = [described_frame(0x41, [Symbol(name), random.choice(responses).encode("utf-8", "replace")])]
        frames += [described_frame(0x43, [random.choice(proofs).encode()]) for _ in range(random.randrange(3))]
        data = SASL_HEADER + b"".join(frame if random.random() < 0.6 else self.mutated(frame) for frame in frames)
        return [data + (self.conversation()[0] if random.random() < 0.3 else b"")]

    def sasl(self) -> list[bytes]:
        """A negotiation, and a conversation behind it."""
        init = framed(
            b"\x00\x53\x41" + encode_value([Symbol(self.random.choice(("ANONYMOUS", "PLAIN", "X"))), b"\0a\0b"]), 0, 1
        )
        if self.random.random() < 0.5:
            init = framed(b"\x00\x53" + bytes((self.random.randrange(0x3E, 0x46),)) + self.value(), 0, 1)
        return [self.mutated(SASL_HEADER + init) + (self.conversation()[0] if self.random.random() < 0.3 else b"")]

    def conversation(self) -> list[bytes]:
        """Frames in an order that is nearly right."""
        parts = [opening("fuzz"), *[self.frame() for _ in range(self.random.randrange(1, 12))]]
        if self.random.random() < 0.2:
            self.random.shuffle(parts)
        return [self.mutated(b"".join(parts))]

    def receivers(self) -> list[bytes]:
        """Links of all kinds that are given any credit, and properties of any kind."""
        random = self.random
        parts = []
        for handle in range(random.randrange(1, 6)):
            properties = Raw(self.value()) if random.random() < 0.3 else None
            source = None
            if random.random() < 0.2:
                source = terminus(SOURCE, "fuzz", None, None, None, None, Raw(self.value()), None, Raw(self.value()))
            parts.append(receiving(handle, random.choice(ADDRESSES), source=source, properties=properties))
            parts += [credit(handle, random.choice(NUMBERS)) for _ in range(random.randrange(1, 3))]
        parts += [self.frame() for _ in range(random.randrange(3))]
        data = b"".join(parts)
        return [opening("fuzz") + (self.mutated(data) if random.random() < 0.3 else data)]

    def selecting(self) -> list[bytes]:
        """A receiver that selects, and messages that take long to be looked at."""
        random = self.random
        selector = selecting(random.choice(SELECTORS))
        source = terminus(
            SOURCE, "fuzz.selected", None, None, None, None, None, random.choice((None, Symbol("copy"))), selector
        )
        application = {"a": "a" * random.choice((10, 10_000, 200_000)), "b": random.choice((1, "b"))}
        message = encode_message(header=Header(), application_properties=application, body=DataBody(b"x"))
        sends = b"".join(self.transfer(1, number, message) for number in range(3))
        attached = receiving(0, "", source=source) + credit(0, 10) + sending(1, "fuzz.selected")
        return [opening("fuzz") + attached, self.mutated(sends) if random.random() < 0.3 else sends]

    def messages(self) -> list[bytes]:
        """Transfers of mutated messages."""
        address = self.random.choice(("fuzz", None, "topic://fuzz", "$management", "coordinator"))
        target = terminus(COORDINATOR) if address == "coordinator" else None
        properties = {names.PRODUCER_ID: "fuzz"} if self.random.random() < 0.2 else None
        attach = sending(0, address, target=target, properties=properties)
        sends = [self.transfer(0, number, self.mutated(self.message())) for number in range(MESSAGES_PER_INPUT)]
        return [opening("fuzz") + attach, b"".join(sends) + self.frame()]

    def requests(self) -> list[bytes]:
        """Requests to the management address."""
        sends = []
        for number in range(MESSAGES_PER_INPUT):
            request = self.request()
            sends.append(self.transfer(0, number, self.mutated(request) if self.random.random() < 0.3 else request))
        return [opening("fuzz") + sending(0, "$management"), b"".join(sends)]

    # -- parts

    def frame(self) -> bytes:
        """One frame; now and then one of its fields is anything."""
        number = UInt(self.random.choice(NUMBERS))
        handle = UInt(self.random.choice((0, 0, 1, 2, 4096)))
        address = self.random.choice(ADDRESSES)
        selector = Raw(encode_value({Symbol("s"): Described(ULong(0x0000468C00000004), self.random.choice(SELECTORS))}))
        source = terminus(SOURCE, address, UInt(0), None, UInt(0), False, None, None, selector)
        dynamic = terminus(self.random.choice((SOURCE, TARGET)), None, UInt(0), None, UInt(5), True)
        flow = [UInt(0), UInt(1000), UInt(0), UInt(1000), handle, UInt(0), number, None, self.random.random() < 0.3]
        fields: dict[int, Callable[[], list[Any]]] = {
            OPEN: lambda: ["fuzz", None, number, UInt(9), UInt(0), None, None, None, None, {Symbol("a"): 1}],
            BEGIN: lambda: [None, UInt(0), number, UInt(100)],
            ATTACH: lambda: [
                *(f"l{handle}", handle, self.random.random() < 0.5, UByte(2), UByte(self.random.randrange(3))),
                *(self.random.choice((source, terminus(SOURCE, address), dynamic)),),
                *(self.random.choice((terminus(TARGET, address), terminus(COORDINATOR), dynamic)),),
                *(None, None, UInt(0), None, None, None, {Symbol(names.PRODUCER_ID): "p"}),
            ],
            FLOW: lambda: [*flow, self.random.random() < 0.2],
            TRANSFER: lambda: [handle, number, b"t", UInt(0), False, self.random.random() < 0.3, None, None],
            DISPOSITION: lambda: [True, UInt(0), number, True, Described(ULong(self.random.randrange(0x22, 0x36)), [])],
            DETACH: lambda: [handle, self.random.random() < 0.5],
            END: list,
            CLOSE: list,
        }
        code = self.random.choice((ATTACH, ATTACH, ATTACH, FLOW, FLOW, FLOW, TRANSFER, DISPOSITION, *fields))
        chosen = fields[code]()
        if chosen and self.random.random() < 0.4:
            chosen[self.random.randrange(len(chosen))] = Raw(self.value())
        payload = self.message() if code == TRANSFER else b""
        return frame(code, chosen, payload, channel=self.random.choice((0, 0, 0, 0, 1, 4095)))

    def transfer(self, handle: int, number: int, message: bytes) -> bytes:
        """A transfer; its state may be anything."""
        state = Raw(self.value()) if self.random.random() < 0.1 else None
        tag = number.to_bytes(8, "big") if self.random.random() < 0.8 else self.random.randbytes(33)
        fields = [UInt(handle), UInt(number), tag, UInt(0), self.random.random() < 0.2, False, None, state]
        return frame(TRANSFER, fields, message)

    def message(self) -> bytes:
        """A message, some sections of which may be anything."""
        random = self.random
        if random.random() < 0.1:
            return random.choice((encode_declare(), encode_discharge(b"t" * random.randrange(40), True)))
        if random.random() < 0.3:
            sections = sorted(random.sample(range(0x70, 0x79), random.randrange(1, 5)))
            return b"".join(bytes((0, 0x53, section)) + self.value() for section in sections)
        properties = Properties(
            message_id=random.choice((None, "m", 7, b"x")),
            to=random.choice((None, *ADDRESSES)),
            reply_to=random.choice((None, *ADDRESSES)),
            group_id=random.choice((None, "g")),
            absolute_expiry_ms=random.choice((None, -1, 1, (1 << 63) - 1)),
        )
        annotations = {"x-opt-delivery-time": random.choice((0, 1, (1 << 63) - 1)), "x-opt-jms-dest": 1}
        application = {"a": "a" * random.choice((1, 1000, 50_000)), names.DUPLICATE_ID: random.choice(("d", 7, b"x"))}
        return encode_message(
            header=Header(durable=True, priority=random.randrange(256), ttl_ms=random.choice((None, 0, 1, 1 << 31))),
            message_annotations=annotations if random.random() < 0.3 else None,
            properties=properties,
            application_properties=application if random.random() < 0.5 else None,
            body=random.choice((DataBody(b"x" * 100), ValueBody("x"), ValueBody({"k": [1, 2]}))),
        )

    def request(self) -> bytes:
        """A request to the management address."""
        random = self.random
        operations = (
            "create delete read query purge move pause resume open assign acknowledge release ticket publish discard"
        )
        anything: tuple[Any, ...] = (
            *ADDRESSES,
            "..",
            "#." * 2000 + "x",
            "x" * 5000,
            0,
            -1,
            (1 << 63) - 1,
            True,
            1.5,
            None,
            b"b",
            "[" * 5000,
        )
        arguments: dict[str, Any] = {
            "operation": random.choice(operations.split()),
            "type": random.choice(("queue", "topic", "subscription", "broker", "assignment", "stage", "nothing")),
            "name": random.choice(("fuzz", *ADDRESSES)),
        }
        for key in ("to", "selector", "offset", "count", "match", "limit", "batch", "stages", "stage", "properties",
                    "subscription", "address", "fence", "through", "after", "topic", "latest", "bare"):  # fmt: skip
            if random.random() < 0.25:
                arguments[key] = random.choice(anything)
        if arguments["type"] == "queue" and arguments["name"] == "good":
            arguments["name"] = "fuzz"
        arguments = {key: value for key, value in arguments.items() if value is not None or random.random() < 0.5}
        if random.random() < 0.1:
            arguments = {"operation": "create", "name": LONG_NAME}
            if random.random() < 0.7:
                arguments = {
                    "operation": "query",
                    "match": random.choice(("#." * 100 + "x", "#." * 2000 + "x", "#.*." * 50 + "#")),
                }
        as_json = random.random() < 0.2
        body = json.dumps({key: value for key, value in arguments.items() if not isinstance(value, bytes)})
        if as_json and random.random() < 0.5:
            body = body.replace("1", random.choice(("9" * 400, "[" * 3000, "1e999")))
        return encode_message(
            header=Header(),
            properties=Properties(message_id="r", reply_to=random.choice((None, "fuzz", "answers"))),
            application_properties={} if as_json else arguments,
            body=ValueBody(body if as_json else random.choice((None, arguments))),
        )

    def value(self, depth: int = 0) -> bytes:
        """The bytes of any value: right, wrong, or a bomb."""
        random = self.random
        draw = random.random()
        if draw < 0.08:
            count = random.choice((*NUMBERS, 60_000, 4096))
            return (
                b"\xf0"
                + (5).to_bytes(4, "big")
                + count.to_bytes(4, "big")
                + bytes((random.choice((0x40, 0x41, 0x43, 0x45)),))
            )
        if draw < 0.11 and not depth:
            count = random.choice((20, 200, 1000))
            array = b"\xf0\x00\x00\x00\x05\x00\x00\xff\xff\x40"
            if random.random() < 0.5:
                array = b"\xf0\x00\x00\x00\x05\x00\x00\x0f\xff\x41"
            return b"\xd0" + (count * len(array) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + array * count
        if draw < 0.13:
            return b"\x00\x53\x01" * random.choice((1, 5, 40, 3000)) + b"\x40"
        if draw < 0.16:
            return random.randbytes(random.randrange(1, 20))
        if draw < 0.4 and depth < 4:
            items = [self.value(depth + 1) for _ in range(random.randrange(6))]
            items *= random.choice((1, 1, 1, 100)) if len(b"".join(items)) < 400 else 1
            inside = b"".join(items)
            code = random.choice((0xD0, 0xD1))
            count = len(items) if random.random() < 0.8 else random.choice(NUMBERS)
            return bytes((code,)) + (len(inside) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + inside
        return encoded(
            random.choice(
                (
                    None,
                    True,
                    0,
                    -1,
                    (1 << 63) - 1,
                    UInt(5),
                    ULong(1 << 63),
                    UByte(9),
                    1.5,
                    float("nan"),
                    "text",
                    "x" * 300,
                    b"",
                    b"x" * 300,
                    Symbol("symbol"),
                    [],
                    {},
                    {"a": 1},
                    Described(ULong(0x28), []),
                )
            )
        )

    def mutated(self, data: bytes) -> bytes:
        """Some of the bytes are others, are gone, or are there twice."""
        random = self.random
        changed = bytearray(data)
        for _ in range(random.choice((0, 0, 1, 1, 2, 4, 16))):
            if not changed:
                break
            at = random.randrange(len(changed))
            match random.randrange(6):
                case 0:
                    changed[at] ^= 1 << random.randrange(8)
                case 1:
                    changed[at] = random.choice(
                        (0, 0x40, 0x45, 0x53, 0x80, 0xA1, 0xB1, 0xC0, 0xC1, 0xD0, 0xE0, 0xF0, 0xFF)
                    )
                case 2:
                    del changed[at : at + random.randrange(1, 16)]
                case 3:
                    changed[at:at] = changed[at : at + random.randrange(1, 64)]
                case 4:
                    changed[at:at] = random.randbytes(random.randrange(1, 8))
                case 5:
                    changed[at : at + 4] = random.choice(NUMBERS).to_bytes(4, "big")
        return bytes(changed)


def described_frame(code: int, fields: list[Any]) -> bytes:
    """A frame of SASL."""
    return framed(b"\x00\x53" + bytes((code,)) + encode_value(fields), kind=1)


def send(port: int, parts: list[bytes], user: str = "") -> None:
    """Write an input, and wait until the broker is done with it.

    Args:
        user: who logs in before; empty: nobody.
    """
    peer = RawPeer(port)
    try:
        try:
            if user:
                peer.send(SASL_HEADER, described_frame(0x41, [Symbol("PLAIN"), f"\0{user}\0{PASSWORD}".encode()]))
                assert OUTCOME in peer.hear_until(OUTCOME)
            for part in parts[:-1]:
                peer.send(part)
                peer.hear_until(A_FLOW)
            peer.send(parts[-1])
            peer.socket.shutdown(1)
        except TimeoutError:
            raise
        except OSError:
            pass  # The broker has hung up, as it may.
        peer.hear_all()
    finally:
        peer.close()


class GoodClient:
    """Somebody who does nothing wrong."""

    def __init__(self, port: int, *, users: bool = False) -> None:
        self.longest_s = 0.0
        login = {"user": "good", "password": PASSWORD} if users else {}
        self._peer = AmqpPeer(port, container="good", **login)  # type: ignore[arg-type]
        self._sender = self._peer.sender("good")
        self._receiver = self._peer.receiver("good", 1)

    def round_trip(self) -> None:
        """Send a message and receive it; raises an error if that takes too long."""
        began = time.monotonic()
        assert self._peer.send(self._sender, text(b"well"), b"t") == ACCEPTED
        transfer = self._peer.transfer()
        assert data_of(transfer) == b"well"
        self._receiver.settle(transfer.delivery, ACCEPTED)
        self._receiver.add_credit(1)
        self._peer.flush()
        self.longest_s = max(self.longest_s, time.monotonic() - began)

    def internal_errors(self) -> int:
        """As the broker counts them."""
        self._peer.receiver("$status", 1)
        body = decode_message(self._peer.transfer().data).body
        assert isinstance(body, DataBody)
        return int(json.loads(body.data)["internal_errors"])

    def close(self) -> None:
        self._peer.drop()


def read_in_a_client(data: bytes) -> None:
    """What our own client does with bytes of anybody."""
    with contextlib.suppress(ProtocolError, ValueError):
        decode_message(data)


def with_users(directory: Path) -> MeasuredServer:
    """A broker with users, roles and an audit trail: `wide` may do everything, `narrow` a little."""
    store = directory / "store"
    store.mkdir(mode=0o700)
    with changing(store / "users") as content:
        keys = make_keys(PASSWORD, ITERATIONS_MIN)
        for name in ("good", "wide", "narrow"):
            content.users[name] = User(name, (), keys)
    (directory / "legato.toml").write_text(SETTINGS.format(directory=directory))
    return MeasuredServer(store, "--config", str(directory / "legato.toml"))


def run(
    server: MeasuredServer,
    seeds: Iterator[int],
    say: Callable[[str], None] = lambda line: None,
    *,
    users: bool = False,
) -> None:
    """Send the inputs of these seeds.

    Args:
        users: whether the broker is one of `with_users`.

    Raises:
        AssertionError: a turn took too long, an error was not expected, or memory grew.
        TimeoutError: the broker does not answer any more.
    """
    good = GoodClient(server.port, users=users)
    good.round_trip()
    before = server.rss_anon_bytes()
    sent = 0
    for seed in seeds:
        fuzz = Fuzz(seed)
        try:
            parts = fuzz.draw(users=users)
            send(server.port, parts, ("wide", "narrow")[seed % 2] if users and not fuzz.negotiates else "")
            read_in_a_client(fuzz.mutated(fuzz.message()))
            if sent % ROUND_TRIP_EVERY == 0:
                good.round_trip()
        except (TimeoutError, ConnectionError):
            told = server.log.read_text(errors="replace")[-3000:]
            raise AssertionError(
                f"the broker does not answer after the input of seed {seed}; its log: {told}"
            ) from None
        sent += 1
        if sent % 1000 == 0:
            say(f"{sent} inputs, +{(server.rss_anon_bytes() - before) >> 20} MiB, {server.slow_turns()[:1]}")
    good.round_trip()
    errors = good.internal_errors()
    good.close()
    say(f"{sent} inputs, longest round trip {good.longest_s * 1000:.0f} ms, slow turns {server.slow_turns()[:3]}")
    log = server.log.read_text(errors="replace")
    assert not errors, [line for line in log.splitlines() if "internal error" in line][:5]
    assert "Traceback" not in log, log[log.index("Traceback") :][:3000]
    server.check()
    assert server.rss_anon_bytes() - before < RSS_GROWTH_MAX_BYTES


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1_000_000, help="the first one")
    parser.add_argument("--only", type=int, help="send the input of this seed alone")
    parser.add_argument("--users", action="store_true", help="the broker has users, roles and an audit trail")
    options = parser.parse_args()
    seeds = (
        iter([options.only]) if options.only is not None else iter(range(options.seed, options.seed + options.inputs))
    )
    with tempfile.TemporaryDirectory() as directory:
        server = with_users(Path(directory)) if options.users else MeasuredServer(Path(directory) / "store")
        server.start()
        try:
            run(server, seeds, lambda line: print(line, flush=True), users=options.users)
        except AssertionError as error:
            print(f"failed: {error}", file=sys.stderr)
            sys.exit(1)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
