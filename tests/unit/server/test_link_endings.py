"""Which ends of a link end what hangs on it (AMQP 3.5.6)."""

import pytest

from legato.server.links.link_endings import LinkEnding


@pytest.mark.parametrize(
    ("policy", "expiring"),
    [
        ("never", {LinkEnding.CLOSED}),
        (None, {LinkEnding.CLOSED}),
        ("link-detach", set(LinkEnding)),
        ("session-end", {LinkEnding.CLOSED, LinkEnding.SESSION_ENDED, LinkEnding.CONNECTION_CLOSED, LinkEnding.LOST}),
        ("connection-close", {LinkEnding.CLOSED, LinkEnding.CONNECTION_CLOSED, LinkEnding.LOST}),
    ],
)
def test_a_terminus_expires_by_its_policy(policy: str | None, expiring: set[LinkEnding]) -> None:
    assert {ending for ending in LinkEnding if ending.expires(policy)} == expiring


def test_an_end_that_the_receiver_did_not_want_leaves_doubt_about_what_was_seen() -> None:
    assert [ending for ending in LinkEnding if not ending.clean] == [LinkEnding.LOST, LinkEnding.CUT]
