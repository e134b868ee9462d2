"""SASL without I/O, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato import limits
from legato.amqp.codec.types import Array, Described, Symbol, ULong
from legato.amqp.codec.values import decode_value, encode_value
from legato.amqp.engine.mechanisms import Challenge, Failure, Success
from legato.amqp.engine.sasl import AMQP_HEADER, SASL_HEADER, SaslClient, SaslServer
from tests.support.examples import examples


def verify(user: str, password: str) -> bool:
    return (user, password) == ("zoë", "pässword")


def negotiate(client: SaslClient, server: SaslServer) -> None:
    """Hand bytes across until both sides are silent."""
    while True:
        up, down = client.data_to_send(), server.data_to_send()
        if not up and not down:
            return
        server.receive_data(up)
        client.receive_data(down)


def frame(code: int, fields: list[object]) -> bytes:
    body = encode_value(Described(ULong(code), fields))
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


def frames(data: bytes) -> list[Described]:
    """The performatives after the SASL header."""
    assert data[:8] == SASL_HEADER
    found, at = [], 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append(decode_value(data[at + 8 : at + size])[0])
        at += size
    return found


def test_a_client_without_a_name_is_anonymous() -> None:
    client, server = SaslClient(), SaslServer()
    negotiate(client, server)
    assert client.done
    assert server.done
    assert server.user == "anonymous"


def test_a_user_is_known_by_name_and_password() -> None:
    client, server = SaslClient("zoë", "pässword"), SaslServer(anonymous=False, verify=verify)
    negotiate(client, server)
    assert client.done
    assert server.done
    assert server.user == client.user == "zoë"


@pytest.mark.parametrize(("user", "password"), [("zoë", "wrong"), ("", ""), ("x", "pässword")])
def test_a_wrong_password_fails_on_both_sides(user: str, password: str) -> None:
    client, server = SaslClient(user, password), SaslServer(verify=verify)
    negotiate(client, server)
    assert not client.done
    assert not server.done
    assert client.failed
    assert server.failed
    assert not client.failed_temporarily
    assert server.user is None


def test_a_mechanism_that_is_not_offered_is_not_tried() -> None:
    client, server = SaslClient("a", "b"), SaslServer()
    negotiate(client, server)
    assert client.failed is not None
    assert "PLAIN" in client.failed
    assert client.data_to_send() == b""


def test_a_server_refuses_what_it_does_not_offer() -> None:
    server = SaslServer(anonymous=False, verify=verify)
    server.receive_data(SASL_HEADER + frame(0x41, [Symbol("ANONYMOUS"), b""]))
    assert frames(server.data_to_send())[-1] == Described(ULong(0x44), [1])
    assert server.failed
    assert not server.done


def test_mechanisms_go_as_an_array_of_symbols() -> None:
    server = SaslServer(verify=verify)
    server.receive_data(SASL_HEADER)
    (mechanisms,) = frames(server.data_to_send())
    assert mechanisms.descriptor == 0x40
    assert isinstance(mechanisms.value[0], Array)
    assert set(mechanisms.value[0]) == {"PLAIN", "ANONYMOUS"}


def test_what_follows_the_exchange_is_left_for_the_engine() -> None:
    """Clients may send everything at once, python's pyamqp does."""
    server = SaslServer()
    stream = SASL_HEADER + frame(0x41, [Symbol("ANONYMOUS"), b"me"]) + AMQP_HEADER + b"rest"
    for byte in stream[:-1]:
        server.receive_data(bytes((byte,)))
    leftovers = server.leftover
    assert server.done
    assert AMQP_HEADER.startswith(leftovers) or leftovers == b""
    at_once = SaslServer()
    at_once.receive_data(stream)
    assert at_once.leftover == AMQP_HEADER + b"rest"


@pytest.mark.parametrize("anonymous", [True, False])
def test_a_client_may_leave_sasl_out_if_anybody_may_come(anonymous: bool) -> None:
    server = SaslServer(anonymous=anonymous, verify=verify)
    server.receive_data(AMQP_HEADER + b"rest")
    assert server.done is anonymous
    assert (server.failed is None) is anonymous
    assert server.leftover == (AMQP_HEADER + b"rest" if anonymous else b"")
    assert server.data_to_send() == (b"" if anonymous else SASL_HEADER)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1", b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", b"\x16\x03\x01"])
def test_another_protocol_is_refused_with_ours(data: bytes) -> None:
    server = SaslServer()
    server.receive_data(data)
    assert server.failed
    assert server.data_to_send() == SASL_HEADER


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"AMQP\x00\x00\x09\x01", "AMQP 0-9-1, not AMQP 1.0; for Celery write legato://"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "the peer speaks TLS"),
        (b"GET /metrics HTTP/1.1\r\n", "the peer speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak AMQP 1.0"),
    ],
)
def test_what_a_peer_speaks_that_came_to_the_wrong_port_is_named(data: bytes, named: str) -> None:
    server = SaslServer()
    server.receive_data(data)
    assert named in (server.failed or "")


@pytest.mark.parametrize(
    "response", [b"no separators", b"\0only one", b"root\0zo\xc3\xab\0p\xc3\xa4ssword", b"\0\xff\0x"]
)
def test_a_malformed_plain_response_fails(response: bytes) -> None:
    server = SaslServer(verify=verify)
    server.receive_data(SASL_HEADER + frame(0x41, [Symbol("PLAIN"), response]))
    assert server.failed
    assert not server.done


def test_plain_may_wait_for_a_challenge() -> None:
    server = SaslServer(verify=verify)
    server.receive_data(SASL_HEADER + frame(0x41, [Symbol("PLAIN")]))
    assert frames(server.data_to_send())[-1] == Described(ULong(0x42), [b""])
    server.receive_data(frame(0x43, ["\0zoë\0pässword".encode()]))
    assert server.done


def test_mechanisms_may_take_several_steps_and_say_something_at_the_end() -> None:
    class Counting:
        """Asks twice, as SCRAM does."""

        def __init__(self) -> None:
            self.seen: list[bytes | None] = []

        def step(self, response: bytes | None) -> Challenge | Success | Failure:
            self.seen.append(response)
            if len(self.seen) < 3:
                return Challenge(b"challenge %d" % len(self.seen))
            return Success("counted", b"proof") if self.seen == [b"0", b"1", b"2"] else Failure("miscounted")

    server = SaslServer(mechanisms={"COUNTING": Counting})
    server.receive_data(SASL_HEADER + frame(0x41, [Symbol("COUNTING"), b"0"]))
    server.receive_data(frame(0x43, [b"1"]))
    assert not server.done
    server.receive_data(frame(0x43, [b"2"]))
    assert server.done
    assert server.user == "counted"
    assert frames(server.data_to_send())[-1] == Described(ULong(0x44), [0, b"proof"])


def test_an_exchange_must_come_to_an_end() -> None:
    class Endless:
        """Never satisfied."""

        def step(self, response: bytes | None) -> Challenge | Success | Failure:
            return Challenge(b"more")

    server = SaslServer(mechanisms={"ENDLESS": Endless})
    server.receive_data(SASL_HEADER + frame(0x41, [Symbol("ENDLESS"), b""]))
    for _ in range(100):
        server.receive_data(frame(0x43, [b"x"]))
    assert server.failed


@pytest.mark.parametrize(
    "data",
    [
        (limits.SASL_FRAME_BYTES_MAX + 1).to_bytes(4, "big") + b"\x02\x01\x00\x00",
        b"\x00\x00\x00\x07\x02\x01\x00\x00",
        b"\x00\x00\x00\x10\x01\x01\x00\x00" + bytes(8),
        b"\x00\x00\x00\x10\x02\x00\x00\x00" + bytes(8),
        frame(0x43, [b"x"]),
        frame(0x41, [Symbol("PLAIN"), "text"]),
        frame(0x10, ["open"]),
        frame(0x41, [Symbol("PLAIN"), b"x"])[:-1] + b"\xff\xff",
    ],
)
def test_malformed_frames_fail(data: bytes) -> None:
    server = SaslServer(verify=verify)
    server.receive_data(SASL_HEADER + data)
    assert server.failed
    assert not server.done


def test_a_broker_in_trouble_may_be_tried_again() -> None:
    client = SaslClient()
    client.receive_data(SASL_HEADER + frame(0x40, [Symbol("ANONYMOUS")]) + frame(0x44, [4]))
    assert client.failed
    assert client.failed_temporarily


def test_a_client_fails_if_the_broker_does_not_speak_sasl() -> None:
    client = SaslClient()
    client.receive_data(AMQP_HEADER)
    assert client.failed


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_raise(data: bytes, after_header: bool) -> None:
    for side in (SaslServer(verify=verify), SaslClient("a", "b")):
        side.receive_data((SASL_HEADER if after_header else b"") + data)
        side.data_to_send()
        assert not (side.done and side.failed)
