"""What TIBCO EMS' failover sequence says of receivers, told to both clients in the contract `ems` (CONTRACT B)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from legato.client import AcknowledgeMode, Connection, ConnectionFactory, IllegalStateError
from legato.testing import BrokerPair, Network
from tests.integration.client.helpers import drain, receive, send, texts

Connect = Callable[..., Connection]
EMS = {"failover_contract": "ems"}


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_with_several_receivers_a_message_may_go_to_another_and_its_late_acknowledgement_says_so(
    pair: BrokerPair, connect: Connect, factory: Callable[..., ConnectionFactory], queue_name: str, kind: str
) -> None:
    """CONTRACT B11, B12, B14, B15, B16: also of an exclusive queue, if more than one receiver had been started."""
    name = f"{kind}.{queue_name}"
    near = connect(**EMS)
    with Network(pair) as network, factory(network.url, **EMS).create_connection() as far:
        far.start()
        session = far.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        consumer = session.create_consumer(session.create_queue(name))
        send(near, name, "1")
        (late,) = receive(consumer, 1)
        other = near.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        second = other.create_consumer(other.create_queue(name))
        network.cut()
        pair.fail_over()
        (taken,) = receive(second, 1)
        assert (taken.body, taken.redelivered) == ("1", True)
        network.heal()
        with pytest.raises(IllegalStateError, match=str(late.message_id)):
            late.acknowledge()
        session.recover()
        taken.acknowledge()
        other.close()
        send(near, name, "2")
        assert texts(receive(consumer, 1)) == ["2"]


def test_with_one_receiver_an_acknowledgement_is_never_too_late(
    pair: BrokerPair, connect: Connect, queue_name: str
) -> None:
    """CONTRACT B14, B7, B13: the message can go nowhere else."""
    connection = connect(**EMS)
    send(connection, queue_name, *"12")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue(queue_name))
    messages = receive(consumer, 2)
    pair.fail_over()
    again = receive(consumer, 2)
    assert [(message.body, message.redelivered) for message in again] == [("1", True), ("2", True)]
    messages[0].acknowledge()
    session.close()
    assert drain(connection, queue_name) == []
