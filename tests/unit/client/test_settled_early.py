"""What comes and is not the application's, and who waits for it, without sockets.

It gave that back after a failover before the broker had sent it again; or it is a large message that cannot be had.
"""

from __future__ import annotations

from array import array
from errno import ENOSPC
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, encode_message
from legato.amqp.engine.events import Attached, Transfer, TransferAborted, TransferPart, TransferRun
from legato.amqp.engine.outcomes import DELIVERY_FAILED, Outcome
from legato.client.failover.contract import CONTRACTS
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.links.session_state import AcknowledgeMode
from legato.client.messages.large import Spool
from legato.limits import MAX_FRAME_BYTES


class NewLink:
    """A link that counts its credit and remembers what was settled on it."""

    def __init__(self, properties: dict[str, Any]) -> None:
        self.claims = properties.get(names.HELD)
        self.remote_source = SimpleNamespace(kind="source")
        self.remote_properties: dict[str, Any] = {}
        self.credit = 0
        self.settled: dict[int, Outcome] = {}

    def add_credit(self, count: int) -> None:
        self.credit += count

    def drain(self) -> None:
        """The broker answers later, if anything is left of the credit."""

    def settle(self, handle: int, outcome: Outcome) -> None:
        self.settled[handle] = outcome


def consumer(prefetch: int) -> ReceiverEnd:
    """A consumer with a link that is not answered yet."""
    channel: Any = SimpleNamespace(
        mode=AcknowledgeMode.CLIENT,
        contract=CONTRACTS["legato"],
        coordinator=None,
        flowing=True,
        holds_back=False,
        session=SimpleNamespace(
            receiver=lambda name, source, properties: NewLink(properties),
            connection=SimpleNamespace(remote_max_frame_bytes=MAX_FRAME_BYTES),
        ),
        report=lambda error: None,
        restored=lambda end: None,
        touch=lambda: None,
    )
    source: Any = SimpleNamespace(
        properties=dict,
        terminus=lambda: None,
        check_answer=lambda answer: None,
        destination=SimpleNamespace(name="q"),
        selector=None,
    )
    end = ReceiverEnd(channel, "c", source, prefetch)
    end.attach()
    return end


def answer(end: ReceiverEnd, **properties: Any) -> Any:
    """The broker answers the attach."""
    link: Any = end.link
    link.remote_properties = {getattr(names, name): value for name, value in properties.items()}
    end.on_attached(Attached(link))
    return link


def send(end: ReceiverEnd, *seqs: int, together: bool = False) -> None:
    """The broker sends messages, for which it must have credit; they may come together, as a run."""
    link: Any = end.link
    if together:
        assert link.credit >= len(seqs)
        link.credit -= len(seqs)
        end.on_run(TransferRun(link, seqs[0], b"", array("I"), False, seqs[0], [b"m"] * len(seqs)))
        return
    for seq in seqs:
        assert link.credit > 0, f"{seq} cannot come"
        link.credit -= 1
        end.on_transfer(Transfer(link, seq, seq.to_bytes(8, "big"), b"m", False, None))


@pytest.mark.parametrize("together", [False, True])
def test_what_was_given_back_before_it_came_again_is_given_back_when_it_comes(together: bool) -> None:
    """CONTRACT B13, C8: the broker counts it as a failed delivery, and the inbox has no more than the prefetch."""
    end = consumer(prefetch=3)
    answer(end)
    send(end, 1, 2, 3)
    had = list(end.incoming.inbox)
    end.incoming.inbox.clear()
    end.connection_lost()
    end.attach()
    end.give_back([had[0], had[2]])
    link = answer(end, HELD_COUNT=3, ELSEWHERE=[])
    send(end, 1, 2, 3, together=together)
    assert link.settled == {1: DELIVERY_FAILED, 3: DELIVERY_FAILED}
    assert list(end.incoming.outstanding.values()) == [had[1]]
    assert not end.incoming.inbox
    assert end.incoming.awaited == 0
    assert 0 < link.credit <= 3


@pytest.mark.parametrize("together", [False, True])
def test_what_was_given_back_and_went_elsewhere_is_a_message_like_any_other_when_it_comes_later(
    together: bool,
) -> None:
    end = consumer(prefetch=3)
    answer(end)
    send(end, 1, 2)
    had = list(end.incoming.inbox)
    end.incoming.inbox.clear()
    end.connection_lost()
    end.attach()
    end.give_back(had)
    link = answer(end, HELD_COUNT=1, ELSEWHERE=[1])
    send(end, 1, 2, together=together)
    assert link.settled == {2: DELIVERY_FAILED}
    assert [delivery.seq for delivery in end.incoming.inbox] == [1]


@pytest.mark.parametrize("together", [False, True])
def test_what_the_application_has_does_not_come_to_it_again_and_what_is_behind_that_does(together: bool) -> None:
    """Promise 5, be it that both come in one read."""
    end = consumer(prefetch=5)
    answer(end)
    send(end, 1, 2, 3, 4, together=together)
    assert [delivery.data for delivery in end.incoming.inbox] == [b"m"] * 4
    had = [end.incoming.inbox.popleft() for _ in range(2)]
    end.connection_lost()
    end.attach()
    answer(end, HELD_COUNT=2, ELSEWHERE=[])
    send(end, 1, 2, 3, 4, together=together)
    assert list(end.incoming.outstanding.values())[:2] == had
    assert [delivery.seq for delivery in end.incoming.inbox] == [3, 4]
    assert [delivery.handle for delivery in end.incoming.outstanding.values()] == [1, 2, 3, 4]


@pytest.mark.parametrize("how", ["is aborted", "cannot be had"])
def test_who_waits_for_what_comes_hears_of_a_large_message_that_does_not(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a prefetch it took the one credit that there is: the broker has none left to give back."""
    monkeypatch.setattr(Spool, "append", Mock(side_effect=OSError(ENOSPC, "No space left on device")))
    end = consumer(prefetch=0)
    link = answer(end)
    answered: list[bool] = []
    end.probe(lambda: answered.append(True))
    assert (link.credit, answered) == (1, [])
    link.credit -= 1
    if how == "is aborted":
        end.on_aborted(TransferAborted(link))
    else:
        data = encode_message(header=Header(), body=DataBody(b"x"))
        end.on_part(TransferPart(link, 1, (1).to_bytes(8, "big"), data, True, True, False, None))
        assert list(link.settled) == [1]
    assert answered == [True]
    end.want()
    assert link.credit == 1
