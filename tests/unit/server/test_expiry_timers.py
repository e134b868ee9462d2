"""What outlives a lost connection, and what does not."""

import asyncio
from collections.abc import Callable

import pytest

from legato.server.links.expiry_timers import ExpiryTimers
from legato.server.links.link_endings import LinkEnding


def test_without_a_time_it_ends_at_once() -> None:
    loop = asyncio.new_event_loop()
    ended: list[str] = []
    ExpiryTimers(loop, 60, lambda: ended.append("told")).start("x", 0, "me", lambda: ended.append("x"))
    assert ended == ["x"]
    loop.close()


def lingering_story(then: Callable[[ExpiryTimers], None]) -> list[str]:
    """Two things wait for a second, one for a container, one for another; `then` happens; who told the end of what."""

    async def story() -> list[str]:
        done = asyncio.Event()
        ended: list[str] = []
        expiry_timers = ExpiryTimers(asyncio.get_running_loop(), 60, done.set)
        expiry_timers.start("back", 1, "me", lambda: ended.append("back"))
        expiry_timers.start("gone", 1, "you", lambda: ended.append("gone"))
        assert expiry_timers.waits("back")
        then(expiry_timers)
        assert not expiry_timers.waits("back")
        ended.append("...")
        await done.wait()
        expiry_timers.stop()
        return ended

    return asyncio.run(story())


def test_it_ends_after_its_time_unless_somebody_came_back() -> None:
    assert lingering_story(lambda expiry_timers: expiry_timers.cancel("back")) == ["...", "gone"]


def test_what_waits_for_a_container_that_says_goodbye_ends_at_once() -> None:
    assert lingering_story(lambda expiry_timers: expiry_timers.release("me")) == ["back", "...", "gone"]


@pytest.mark.parametrize(
    ("timeout_s", "ending", "seconds", "hold_until_us"),
    [
        (60, LinkEnding.LOST, 60, 60_000_001),
        (5, LinkEnding.LOST, 5, 5_000_001),
        (7200, LinkEnding.LOST, 3600, 7_200_000_001),
        (0, LinkEnding.LOST, 0, 0),
        (60, LinkEnding.CONNECTION_CLOSED, 0, 0),
        (60, LinkEnding.CUT, 0, 0),
    ],
)
def test_only_who_was_cut_off_is_waited_for(
    timeout_s: float, ending: LinkEnding, seconds: float, hold_until_us: int
) -> None:
    """CONTRACT B21: and no longer than asked for, and than the broker is told to."""
    loop = asyncio.new_event_loop()
    expiry_timers = ExpiryTimers(loop, timeout_s, lambda: None)
    assert expiry_timers.seconds(ending, 3600) == seconds
    assert expiry_timers.hold_until_us(ending, 1) == hold_until_us
    loop.close()
