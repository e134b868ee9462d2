"""A client's part of SCRAM, against brokers that are up to no good."""

from __future__ import annotations

import pytest
import scramp

from legato.amqp.engine.client_mechanisms import ClientMechanism, choose
from legato.errors import ProtocolError

SALT = "c2FsdHNhbHRzYWx0c2FsdA=="


def client() -> ClientMechanism:
    mechanism = choose(["SCRAM-SHA-256"], username="ann", password="secret")
    assert not isinstance(mechanism, str)
    return mechanism


def nonce(mechanism: ClientMechanism) -> str:
    return mechanism.begin().decode().partition(",r=")[2]


@pytest.mark.parametrize("count", ["1", "4095", "10000001", "2000000000", "99999999999999999999", "-5", "0", "x", ""])
def test_a_broker_does_not_choose_how_long_a_client_works_nor_how_easily_its_proof_is_cracked(count: str) -> None:
    """A count of two milliards takes minutes; with a count of one, a proof can be held against a dictionary."""
    mechanism = client()
    with pytest.raises(ProtocolError):
        mechanism.answer(f"r={nonce(mechanism)}more,s={SALT},i={count}".encode())


def test_a_usual_count_is_taken() -> None:
    mechanism = client()
    assert mechanism.answer(f"r={nonce(mechanism)}more,s={SALT},i=4096".encode()).startswith(b"c=biws,")


def test_a_nonce_must_be_the_clients_and_more() -> None:
    for wrong in ("other", "", nonce(client())):
        with pytest.raises(ProtocolError):
            client().answer(f"r={wrong},s={SALT},i=4096".encode())


def test_a_proof_is_good_for_one_exchange() -> None:
    """What was heard once lets nobody in: each exchange has its own nonces."""
    made = scramp.ScramMechanism("SCRAM-SHA-256").make_auth_info("secret", iteration_count=4096)
    keys = (made[0], made[1], made[2], 4096)

    def exchange() -> scramp.core.ScramServer:
        return scramp.ScramMechanism("SCRAM-SHA-256").make_server(lambda user: keys)

    first, mechanism = exchange(), client()
    begun = mechanism.begin().decode()
    first.set_client_first(begun)
    heard = mechanism.answer(first.get_server_first().encode()).decode()
    first.set_client_final(heard)
    again = exchange()
    again.set_client_first(begun)
    again.get_server_first()
    with pytest.raises(scramp.ScramException):
        again.set_client_final(heard)
