"""How much a consumer's link lets come after a failover, without sockets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from legato.client.links.deliveries import AckBatch, DeliveryState
from legato.client.links.prefetch import FIRST_CREDIT, PrefetchEnd


class Granted:
    """Counts the credit that a link is given."""

    def __init__(self) -> None:
        self.credit = 0

    def add_credit(self, count: int) -> None:
        self.credit += count


def consumer_back_with(held: int, *, prefetch: int, flowing: bool = True) -> tuple[PrefetchEnd, Granted]:
    """A consumer whose application has had so many messages, on its new link, and is to get them again."""
    channel: Any = SimpleNamespace(flowing=flowing, holds_back=False)
    end = PrefetchEnd(channel, prefetch)
    for seq in range(1, held + 1):
        end.incoming.arrived(end, seq, seq.to_bytes(8, "big"), b"")
    end.incoming.inbox.clear()
    end.incoming.connection_lost(keep=True, again=True)
    end.incoming.claims_answered(held, [])
    link: Any = Granted()
    end.link, end.attached = link, True
    return end, link


@pytest.mark.parametrize("prefetch", [0, 1, 2, 1000])
@pytest.mark.parametrize("flowing", [True, False])
def test_all_that_the_application_holds_may_come_again_whatever_the_inbox_has_room_for(
    prefetch: int, flowing: bool
) -> None:
    """CONTRACT B13, E3: the acknowledgement of the last one waits for nothing that would have to be received first."""
    end, link = consumer_back_with(5, prefetch=prefetch, flowing=flowing)
    *_, last = end.incoming.outstanding.values()
    last.again = False
    last.batch = AckBatch([last])
    last.state = DeliveryState.ACCEPTING
    end.grant()
    again = 0
    for seq in range(1, 6):
        assert link.credit, f"{seq} cannot come"
        link.credit -= 1
        end._credit -= 1
        again += end.incoming.arrived(end, seq, seq.to_bytes(8, "big"), b"") is None
        end.grant()
    assert again == 4
    assert last.link == end.incoming.link


def test_once_it_came_again_the_inbox_fills_up_to_the_prefetch_and_no_further() -> None:
    """What waits here is what the consumer asked for, save what its application had."""
    end, link = consumer_back_with(3, prefetch=2)
    end.grant()
    for seq in range(1, 4):
        link.credit -= 1
        end._credit -= 1
        end.incoming.arrived(end, seq, seq.to_bytes(8, "big"), b"")
    end.grant()
    assert link.credit == 0
    end.incoming.inbox.clear()
    end.grant()
    assert link.credit == 2


@pytest.mark.parametrize("prefetch", [1, 1000])
def test_a_consumer_that_is_being_closed_asks_for_what_comes_again_and_no_more(prefetch: int) -> None:
    """What it would be given besides nobody receives: it would go back, behind what the next consumer has by then."""
    end, link = consumer_back_with(2, prefetch=prefetch)
    end.closing = True
    end.grant()
    assert link.credit == 2
    for seq in range(1, 3):
        link.credit -= 1
        end._credit -= 1
        end.incoming.arrived(end, seq, seq.to_bytes(8, "big"), b"")
        end.incoming.inbox.clear()
        end.grant()
    assert link.credit == 0


def consumer_with(waiting: int, *, prefetch: int) -> tuple[PrefetchEnd, Granted]:
    """A consumer on a new link, for which so many messages came before the application took one."""
    end, link = consumer_back_with(0, prefetch=prefetch)
    end.grant()
    for seq in range(1, waiting + 1):
        link.credit -= 1
        end._credit -= 1
        end.incoming.arrived(end, seq, seq.to_bytes(8, "big"), b"")
    end.grant()
    return end, link


def test_an_application_that_takes_less_than_came_is_given_no_more_than_at_first() -> None:
    """After a failover the rest of a large prefetch would be in everybody's way, and nobody waits for it."""
    end, link = consumer_with(FIRST_CREDIT, prefetch=1000)
    assert link.credit == 0
    for _ in range(FIRST_CREDIT - 1):
        end.incoming.inbox.popleft()
        end.widen()
    assert len(end.incoming.inbox) + link.credit <= FIRST_CREDIT


def test_an_application_that_takes_all_that_came_is_given_more_up_to_the_prefetch() -> None:
    """Who takes faster than messages come is not to wait for them."""
    end, link = consumer_with(FIRST_CREDIT, prefetch=1000)
    given = []
    for _ in range(4):
        end.incoming.inbox.clear()
        end.widen()
        given.append(link.credit)
    assert given == [4 * FIRST_CREDIT, 1000, 1000, 1000]
