"""Which ends of a link end what hangs on it (AMQP 3.5.6)."""

import pytest

from legato.server.links.link_endings import Ending


@pytest.mark.parametrize(
    ("policy", "expiring"),
    [
        ("never", {Ending.CLOSED}),
        (None, {Ending.CLOSED}),
        ("link-detach", set(Ending)),
        ("session-end", {Ending.CLOSED, Ending.SESSION_ENDED, Ending.CONNECTION_CLOSED, Ending.LOST}),
        ("connection-close", {Ending.CLOSED, Ending.CONNECTION_CLOSED, Ending.LOST}),
    ],
)
def test_a_terminus_expires_by_its_policy(policy: str | None, expiring: set[Ending]) -> None:
    assert {ending for ending in Ending if ending.expires(policy)} == expiring


def test_only_a_lost_connection_leaves_doubt_about_what_was_seen() -> None:
    assert [ending for ending in Ending if not ending.clean] == [Ending.LOST]
