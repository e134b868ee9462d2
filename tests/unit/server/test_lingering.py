"""What outlives a lost connection, and what does not."""

import asyncio

from legato.server.lingering import Lingering


def test_without_a_time_it_ends_at_once() -> None:
    loop = asyncio.new_event_loop()
    ended: list[str] = []
    Lingering(loop, lambda: ended.append("told")).leave("x", 0, lambda: ended.append("x"))
    assert ended == ["x"]
    loop.close()


def test_it_ends_after_its_time_unless_somebody_came_back() -> None:
    async def story() -> list[str]:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        ended: list[str] = []
        lingering = Lingering(loop, done.set)
        lingering.leave("back", 1, lambda: ended.append("back"))
        lingering.leave("gone", 1, lambda: ended.append("gone"))
        assert lingering.waits("back")
        lingering.come_back("back")
        assert not lingering.waits("back")
        await done.wait()
        lingering.stop()
        return ended

    assert asyncio.run(story()) == ["gone"]
