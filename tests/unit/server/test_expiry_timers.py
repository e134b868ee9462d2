"""What outlives a lost connection, and what does not."""

import asyncio
from collections.abc import Callable

import pytest

from legato.server.links.expiry_timers import Lingering
from legato.server.links.link_endings import Ending


def test_without_a_time_it_ends_at_once() -> None:
    loop = asyncio.new_event_loop()
    ended: list[str] = []
    Lingering(loop, 60, lambda: ended.append("told")).leave("x", 0, "me", lambda: ended.append("x"))
    assert ended == ["x"]
    loop.close()


def lingering_story(then: Callable[[Lingering], None]) -> list[str]:
    """Two things wait for a second, one for a container, one for another; `then` happens; who told the end of what."""

    async def story() -> list[str]:
        done = asyncio.Event()
        ended: list[str] = []
        lingering = Lingering(asyncio.get_running_loop(), 60, done.set)
        lingering.leave("back", 1, "me", lambda: ended.append("back"))
        lingering.leave("gone", 1, "you", lambda: ended.append("gone"))
        assert lingering.waits("back")
        then(lingering)
        assert not lingering.waits("back")
        ended.append("...")
        await done.wait()
        lingering.stop()
        return ended

    return asyncio.run(story())


def test_it_ends_after_its_time_unless_somebody_came_back() -> None:
    assert lingering_story(lambda lingering: lingering.come_back("back")) == ["...", "gone"]


def test_what_waits_for_a_container_that_says_goodbye_ends_at_once() -> None:
    assert lingering_story(lambda lingering: lingering.release("me")) == ["back", "...", "gone"]


@pytest.mark.parametrize(
    ("timeout_s", "ending", "seconds", "hold_until_us"),
    [
        (60, Ending.LOST, 60, 60_000_001),
        (5, Ending.LOST, 5, 5_000_001),
        (7200, Ending.LOST, 3600, 7_200_000_001),
        (0, Ending.LOST, 0, 0),
        (60, Ending.CONNECTION_CLOSED, 0, 0),
        (60, Ending.CUT, 0, 0),
    ],
)
def test_only_who_was_cut_off_is_waited_for(
    timeout_s: float, ending: Ending, seconds: float, hold_until_us: int
) -> None:
    """CONTRACT B21: and no longer than asked for, and than the broker is told to."""
    loop = asyncio.new_event_loop()
    lingering = Lingering(loop, timeout_s, lambda: None)
    assert lingering.seconds(ending, 3600) == seconds
    assert lingering.hold_until_us(ending, 1) == hold_until_us
    loop.close()
