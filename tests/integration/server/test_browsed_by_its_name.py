"""A browser with the name of the link that made a temporary queue: that link stays, and so does its queue."""

from __future__ import annotations

from legato.amqp.engine.terminus import Terminus
from tests.support.amqp_peer import AmqpPeer


def test_a_temporary_queue_stays_when_its_browser_goes(peer: AmqpPeer) -> None:
    maker = peer.session.receiver("one name", source=Terminus(dynamic=True, kind="source"))
    peer._attached(maker)
    address = maker.remote_source.address
    browser = peer.amqp.begin_session().receiver(
        "one name", source=Terminus(address=address, kind="source", distribution_mode="copy")
    )
    peer._attached(browser)
    browser.close()
    peer.flush()
    peer.sender(address)
