"""Chapter 2, architecture, and 6.1: what a connection is and says about itself; client ids."""

from __future__ import annotations

import pytest

from legato.client import (
    ConnectionFactory,
    IllegalStateError,
    InvalidClientIDError,
    JMSError,
)
from tests.conformance.jms.stories import Connect
from tests.support.broker import BrokerPair


def test_a_connection_says_which_specification_and_provider_it_is(connect: Connect) -> None:
    """6.1.6."""
    metadata = connect().metadata
    assert (metadata.jms_version, metadata.jms_major_version, metadata.jms_minor_version) == ("3.1", 3, 1)
    assert metadata.jms_provider_name == "Legato"
    major, minor = metadata.provider_version.split(".")[:2]
    assert (metadata.provider_major_version, metadata.provider_minor_version) == (int(major), int(minor))
    assert {"JMSXGroupID", "JMSXGroupSeq", "JMSXDeliveryCount"} <= set(metadata.jmsx_property_names)


def test_a_connection_has_no_client_id_unless_it_is_given_one(connect: Connect, client_id: str) -> None:
    """6.1.2."""
    assert connect().client_id is None
    assert connect(client_id=client_id).client_id == client_id


def test_a_client_id_can_be_set_first_of_all(connect: Connect, client_id: str, queue_name: str) -> None:
    """6.1.2."""
    connection = connect(started=False)
    connection.set_client_id(client_id)
    assert connection.client_id == client_id
    session = connection.create_session()
    session.create_producer(session.create_queue(queue_name)).send(session.create_text_message("tea"))


def test_a_client_id_cannot_be_set_twice_or_after_the_connection_was_used(connect: Connect, client_id: str) -> None:
    """6.1.2."""
    with pytest.raises(IllegalStateError):
        connect(client_id=client_id, started=False).set_client_id(f"{client_id}.other")
    used = connect(started=False)
    used.create_session()
    with pytest.raises(IllegalStateError):
        used.set_client_id(f"{client_id}.other")
    with pytest.raises(IllegalStateError):
        connect().set_client_id(f"{client_id}.other")


def test_a_client_id_is_for_one_connection_at_a_time(connect: Connect, client_id: str) -> None:
    """6.1.2; the refused connection can be used on."""
    first = connect(client_id=client_id)
    with pytest.raises(InvalidClientIDError):
        connect(client_id=client_id)
    other = connect(started=False)
    with pytest.raises(InvalidClientIDError):
        other.set_client_id(client_id)
    first.close()
    other.set_client_id(client_id)
    assert other.client_id == client_id


def test_a_client_id_can_be_set_as_an_attribute(brokers: BrokerPair, client_id: str) -> None:
    with ConnectionFactory(brokers.url).create_connection() as connection:
        connection.client_id = client_id
        assert connection.client_id == client_id
        with pytest.raises(IllegalStateError):
            connection.client_id = f"{client_id}.other"


def test_an_empty_client_id_is_refused(connect: Connect) -> None:
    with pytest.raises(InvalidClientIDError):
        connect(started=False).set_client_id("")


def test_all_errors_are_jms_errors_with_a_code_and_a_linked_one(connect: Connect) -> None:
    """Chapter 9."""
    with pytest.raises(JMSError) as raised:
        connect(client_id="x").create_session(acknowledge_mode=77)  # type: ignore[arg-type]
    assert raised.value.code is None
    assert raised.value.linked is None


def test_everything_of_a_closed_connection_is_closed(connect: Connect) -> None:
    """6.1.8."""
    connection = connect()
    session = connection.create_session()
    connection.close()
    connection.close()
    for call in (connection.start, connection.stop, connection.create_session, session.create_message, session.recover):
        with pytest.raises(IllegalStateError):
            call()
