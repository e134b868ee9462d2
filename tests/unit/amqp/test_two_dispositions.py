"""The engine tells of each change of a delivery, and shows the last state for all of them."""

import pytest

from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Attached, Disposition, Opened, SessionBegan, Transfer
from legato.amqp.engine.link import Sender
from legato.amqp.engine.outcomes import ACCEPTED, RECEIVED
from legato.amqp.engine.settings import Settings
from legato.amqp.engine.terminus import Terminus

pytestmark = pytest.mark.usefixtures("either_way")


def test_two_dispositions_in_one_read_are_not_the_last_one_twice() -> None:
    server = Connection(server=True, settings=Settings(container_id="s"))
    client = Connection(server=False, settings=Settings(container_id="c"))
    client.open()
    receiver = client.begin_session().receiver("r", source=Terminus(address="q"))
    receiver.add_credit(2)
    sender: Sender | None = None
    for event in server.receive_data(client.data_to_send()):
        match event:
            case Opened():
                server.open()
            case SessionBegan(session=session):
                session.open()
            case Attached(link=Sender() as sender):
                sender.accept()
    assert sender is not None
    for context in ("one", "two"):
        sender.send(b"\x00\x53\x77\x40", context.encode(), context)
    arrived = [event for event in client.receive_data(server.data_to_send()) if isinstance(event, Transfer)]
    for event in arrived:
        receiver.update(event.delivery, RECEIVED)
    first = client.data_to_send()
    for event in arrived:
        receiver.update(event.delivery, ACCEPTED)
    events = server.receive_data(first + client.data_to_send())
    outcomes = [event.outcome for event in events if isinstance(event, Disposition)]
    # Two messages, so that the engine cannot merge the two events of one.
    assert outcomes.count(ACCEPTED) == 2
