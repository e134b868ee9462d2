"""Mistakes to plant in the broker: runs of messages, and the order of what comes back."""

from __future__ import annotations

from legato.core.lanes import Lane
from legato.core.message import Message, MessageRun
from legato.core.message_states import PUT_BACK, enter


def apart_from_the_last(self: Lane) -> None:
    """When the messages of a waiting run are needed one by one, the last one comes first."""
    run = self.ready.popleft()
    assert isinstance(run, MessageRun)
    self.run_messages -= run.count - 1
    self.ready.extendleft(run.messages())


def window_before_what_came_back(self: Lane) -> bool:
    """What waits in the window is given before what came back, which is older."""
    return bool(self.returned and not self.ready)


def last_back_first(self: Lane, message: Message) -> None:
    """Of what comes back the last is given first."""
    enter(message, PUT_BACK)
    message.waiting = True
    self.returned.insert(0, message)
