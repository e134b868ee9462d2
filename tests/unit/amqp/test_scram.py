"""SCRAM between our client and our broker, and what each refuses of the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from legato.amqp.codec.types import Array, Symbol
from legato.amqp.engine.mechanisms import Failure, Result, Success
from legato.amqp.engine.sasl import SASL_HEADER, SaslClient, SaslServer
from legato.server.identity.keys import ITERATIONS_MIN, Keys, derive, fake
from legato.server.identity.mechanisms import CheckedPlain, Scram
from tests.unit.amqp.test_sasl import frame, negotiate

PASSWORD = "pässword"
NAMES = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def find(user: str, mechanism: str) -> tuple[Keys, bool]:
    if user == "zoë":
        return derive(mechanism, PASSWORD, ITERATIONS_MIN, b"salt" * 4), True
    return fake(mechanism, ITERATIONS_MIN, b"secret", user), False


def server_of(*names: str, find: Callable[[str, str], tuple[Keys, bool]] = find, blocked: bool = False) -> SaslServer:
    return SaslServer(
        anonymous=False,
        mechanisms={name: lambda name=name: Scram(name, find, lambda user: blocked) for name in names},  # type: ignore[misc]
    )


@pytest.mark.parametrize("name", NAMES)
def test_both_sides_prove_that_they_know_the_password(name: str) -> None:
    client, server = SaslClient("zoë", PASSWORD, secret_may_be_shown=False), server_of(name)
    negotiate(client, server)
    assert client.done
    assert server.done
    assert server.user == "zoë"
    assert server.mechanism == name


def test_the_password_is_in_nothing_that_is_sent() -> None:
    client, server = SaslClient("zoë", PASSWORD), server_of(*NAMES)
    sent = b""
    while True:
        up, down = client.data_to_send(), server.data_to_send()
        if not up and not down:
            break
        sent += up
        server.receive_data(up)
        client.receive_data(down)
    assert server.mechanism == "SCRAM-SHA-512"
    assert PASSWORD.encode() not in sent


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("user", "password"), [("zoë", "wrong"), ("nobody", PASSWORD), ("nobody", "")])
def test_a_wrong_password_and_an_unknown_user_are_answered_alike(name: str, user: str, password: str) -> None:
    client, server = SaslClient(user, password), server_of(name)
    steps = []
    while True:
        up, down = client.data_to_send(), server.data_to_send()
        if not up and not down:
            break
        steps.append(len(down) > 0)
        server.receive_data(up)
        client.receive_data(down)
    assert server.refused == Failure(f"wrong user name or password for {user}", user=user)
    assert client.failed == "the broker did not accept the user name and password"
    assert not client.failed_temporarily
    assert steps == [False, True] * 3


def test_a_user_whose_logins_failed_too_often_is_asked_to_come_later() -> None:
    client, server = SaslClient("zoë", PASSWORD), server_of(*NAMES, blocked=True)
    negotiate(client, server)
    assert client.failed_temporarily
    assert not server.done


class Impostor(Scram):
    """A broker that does not know the password, and says that all is well."""

    def step(self, response: bytes | None) -> Result:
        result = super().step(response)
        return result if not isinstance(result, Failure) else Success("zoë", b"v=" + b"A" * 43 + b"=")


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    """RFC 5802, 5: the client checks the server's signature."""

    def other(user: str, mechanism: str) -> tuple[Keys, bool]:
        return derive(mechanism, "another", ITERATIONS_MIN, b"salt" * 4), True

    server = SaslServer(
        anonymous=False, mechanisms={"SCRAM-SHA-256": lambda: Impostor("SCRAM-SHA-256", other, lambda user: False)}
    )
    client = SaslClient("zoë", PASSWORD)
    negotiate(client, server)
    assert not client.done
    assert client.failed == "the broker did not prove that it knows the password"


@pytest.mark.parametrize("after", [0, 1])
def test_a_broker_that_leaves_its_proof_out_is_not_believed(after: int) -> None:
    client, server = SaslClient("zoë", PASSWORD), server_of("SCRAM-SHA-256")
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    for _ in range(after):
        server.receive_data(client.data_to_send())
        client.receive_data(server.data_to_send())
    client.receive_data(frame(0x44, [0]))
    assert not client.done
    assert client.failed


@pytest.mark.parametrize(
    "challenge", [b"", b"\xff", b"r=x,s=c2FsdHNhbHRzYWx0,i=4096", b"r=,s=,i=", b"i=99999999999999999999999999", b"e=x"]
)
def test_a_challenge_that_makes_no_sense_ends_the_login(challenge: bytes) -> None:
    client = SaslClient("zoë", PASSWORD)
    client.receive_data(SASL_HEADER + frame(0x40, [Array([Symbol("SCRAM-SHA-256")])]) + frame(0x42, [challenge]))
    assert client.failed


@pytest.mark.parametrize(
    "response", [b"", b"\xff", b"n,,", b"n,,n=,r=x", b"p=tls-unique,,n=zo,r=x", b"n,a=root,n=zo,r=x"]
)
def test_a_response_that_makes_no_sense_is_refused(response: bytes) -> None:
    server = server_of("SCRAM-SHA-256")
    server.receive_data(SASL_HEADER + frame(0x41, [Symbol("SCRAM-SHA-256"), response]))
    assert server.failed
    assert not server.done


def test_a_secret_is_not_shown_where_it_may_not_be() -> None:
    client = SaslClient("zoë", PASSWORD, secret_may_be_shown=False)
    client.receive_data(SASL_HEADER + frame(0x40, [Array([Symbol("PLAIN"), Symbol("ANONYMOUS")])]))
    assert client.failed is not None
    assert "in the clear" in client.failed
    assert client.data_to_send() == SASL_HEADER


def test_what_takes_long_is_handed_out_and_what_comes_meanwhile_waits() -> None:
    server = SaslServer(
        anonymous=False,
        mechanisms={"PLAIN": lambda: CheckedPlain(lambda user, password: Success(user), lambda user: False)},
    )
    server.receive_data(SASL_HEADER + frame(0x41, [Symbol("PLAIN"), b"\0ann\0x"]) + b"AMQP\0\1\0\0rest")
    assert server.check is not None
    assert not server.done
    server.receive_data(b" and more")
    server.resume(server.check.work())
    assert server.done
    assert server.leftover == b"AMQP\0\1\0\0rest and more"
