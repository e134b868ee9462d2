"""Receiving, and events that come at the wrong moment: over links to a broker that answers when a test wants it to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, encode_message
from legato.amqp.engine.events import (
    TransferAborted,
    TransferPart,
)
from legato.amqp.engine.outcomes import ACCEPTED, DELIVERY_FAILED
from legato.client.calls.consumer_steps import ConsumerSteps
from legato.client.calls.session_guard import SessionGuard
from legato.client.calls.turn import ThreadTurn
from legato.client.links.browser_end import BrowserEnd
from legato.client.links.deliveries import AckBatch, DeliveryState
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.links.session_state import AcknowledgementOutcome, AcknowledgeMode, Transaction
from legato.client.mapping.source import Source
from legato.client.messages.destinations import Queue
from legato.client.steps import drive
from legato.errors import JMSError
from tests.unit.client.scripted import BODY, CONSUMER, COORDINATOR, Broker, Client, TransactedClient

Mode = AcknowledgeMode


@pytest.mark.parametrize("mode", [Mode.CLIENT, Mode.INDIVIDUAL])
def test_recover_during_an_outage_gives_back_what_all_consumers_received(brokers: list[Broker], mode: Mode) -> None:
    """A consumer that is closed with it was taken out of the list that was gone through: the next one was left out."""
    first, second, _ = brokers
    client = Client(mode)
    ends = [client.consumer(name) for name in ("c1", "c2")]
    client.connect(first)
    had = []
    for number, end in enumerate(ends, 1):
        first.answer(end.name)
        first.give(end.name, number)
        had.append(client.receive(end))
    first.exchange()
    ends[0].release()
    first.exchange()
    first.giving["c1"].drained()
    first.exchange()
    assert ends[0].released
    client.lose()
    batch = AckBatch(had)
    batch.open = 1
    client.channel.recover(batch)
    assert batch.open == 0
    assert [each.state for each in had] == [DeliveryState.RETURNED] * 2
    client.connect(second)
    assert names.HELD not in second.giving["c2"].remote_properties, "it claims what it has given back"


@pytest.mark.parametrize("how", ["given back meanwhile", "held yet"])
def test_a_close_ends_once_claims_have_come_that_say_what_became_of_the_rest(brokers: list[Broker], how: str) -> None:
    """The last of what was claimed said that another one was acknowledged; nobody looked whether that was all."""
    first, second, _ = brokers
    client = Client(Mode.AUTO)
    end = client.consumer("c")
    client.connect(first)
    first.answer("c")
    first.give("c", 1, 2)
    done = client.receive(end)
    in_listener = end.incoming.inbox.popleft()
    end.presented.append(in_listener)
    client.channel.wake_receiver(end)
    first.exchange()
    client.lose()  # the broker has heard of the acknowledgement, and that was not heard
    client.connect(second)
    if how == "given back meanwhile":
        # Its listener raised.
        batch = AckBatch([in_listener])
        batch.open = 1
        client.channel.recover(batch)
        assert batch.open == 0
    end.release()
    link = second.answer("c", held=1)
    assert link.credit == 1
    second.give("c", 2)
    assert done.state is DeliveryState.ACKNOWLEDGED
    assert second.detached("c"), "the close waits for ever"


def test_an_acknowledgement_that_waits_for_the_truth_gets_it_though_its_call_was_interrupted(
    brokers: list[Broker],
) -> None:
    """Contract gigaspaces: nothing came until the abort was told, and no call came to tell it: each waited first."""
    first, second, _ = brokers
    client = Client(Mode.INDIVIDUAL, "gigaspaces")
    end = client.consumer("c")
    client.connect(first)
    first.answer("c")
    first.give("c", 1, 2)
    one, _two = client.receive(end), client.receive(end)
    batch = AckBatch([one], resolved=True)
    client.channel.acknowledge(batch)
    client.channel.grant()
    client.lose()
    assert client.channel.aborted is not None
    # It is cancelled: the next call asks again, and waits for that first.
    client.channel.look_again()
    client.connect(second)
    second.answer("c", held=2)
    client.channel.acknowledge(batch)
    client.channel.grant()
    second.exchange()
    second.give("c", 1)
    second.confirm("c", 1)
    assert batch.open == 0


class _Session(SimpleNamespace):
    pass


def consumer_steps(client: Client, end: ReceiverEnd) -> ConsumerSteps:
    guard = SessionGuard(client.channel, ThreadTurn())
    session: Any = _Session(
        _channel=client.channel,
        _guard=guard,
        _undertakings=SimpleNamespace(current=None),
        _transactions=SimpleNamespace(untold=None),
        _acknowledgements=SimpleNamespace(
            mode=client.channel.mode,
            acknowledge_needlessly=None,
            acknowledger=lambda delivery: None,
            unacknowledged={},
        ),
    )
    return ConsumerSteps(session, end, None)


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.CLIENT, Mode.DUPS_OK])
@pytest.mark.parametrize("prefetch", [1, 2])
def test_what_is_no_message_gives_its_room_back(brokers: list[Broker], mode: Mode, prefetch: int) -> None:
    """All credit was used up by what was refused, and nothing else asked for more."""
    broker = brokers[0]
    client = Client(mode)
    end = client.consumer("c", prefetch)
    consumer = consumer_steps(client, end)
    client.connect(broker)
    link = broker.answer("c")
    for seq in range(1, prefetch + 1):
        broker.give("c", seq, body=b"\xff")
    assert drive(consumer._receive(0.01)) is None
    broker.exchange()
    assert [seq for seq, _ in broker.outcomes("c")] == list(range(1, prefetch + 1))
    assert link.credit > 0, "nothing can come any more"


def test_a_browser_asks_on_after_a_large_message_that_went_while_it_was_shown(brokers: list[Broker]) -> None:
    """It was the last of what was asked for: who waits has asked already, and asks no more."""
    broker = brokers[0]
    client = Client(Mode.AUTO)
    client.connect(broker)
    end = BrowserEnd(client.channel, "b", Source(destination=Queue("q")), 1)
    client.channel.add_browser(end)
    broker.exchange()
    link = broker.answer("b")
    assert link.credit == 1
    link.begin(b"\x01", None, settled=True)
    link.push(encode_message(header=Header(), body=DataBody(b"x" * 3_000_000)))
    broker.exchange()
    end.ask()  # as `next()` does, before it waits
    broker.exchange()
    link.abort()
    broker.exchange()
    assert end.finished or link.credit > 0, "next() waits for ever"


@pytest.mark.parametrize("how", ["the session is ended", "the connection is gone for good"])
@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.DUPS_OK, Mode.CLIENT])
def test_what_can_never_be_acknowledged_is_not_presented(brokers: list[Broker], how: str, mode: Mode) -> None:
    """It comes to somebody else, for whom nothing says that it was presented before."""
    broker = brokers[0]
    client = Client(mode)
    end = client.consumer("c")
    consumer = consumer_steps(client, end)
    client.connect(broker)
    broker.answer("c")
    broker.give("c", 1, 2)
    error = JMSError("it is over")
    if how == "the session is ended":
        # As `Transport._session_ended`.
        client.channel.session = None
        client.channel.fail(error)
    else:
        # As `Transport._fail`, of a connection that the broker closes since the user may not any more.
        client.transport.error = error
        client.channel.abandon(error)
    with pytest.raises(JMSError, match="it is over"):
        drive(consumer._receive(0.1))


@pytest.mark.parametrize("how", ["cannot be had", "is aborted"])
def test_a_claimed_large_message_that_does_not_come_after_all_is_waited_for_no_more(
    brokers: list[Broker], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its acknowledgement waited for ever, and that of all others that did not come."""
    first, second, _ = brokers
    client = Client(Mode.INDIVIDUAL, "ems")
    end = client.consumer("c")
    client.connect(first)
    first.answer("c")
    first.give("c", 1)
    one = client.receive(end)
    client.lose()
    client.connect(second)
    second.answer("c", held=1)
    assert end.link is not None
    end.incoming.wants((1).to_bytes(8, "big"))
    if how == "is aborted":
        end.on_part(TransferPart(end.link, 1, one.tag, BODY, True, False, False, None))
        end.on_aborted(TransferAborted(end.link, one.tag))
    else:
        monkeypatch.setattr(end.link, "settle", lambda handle, outcome: None)
        from errno import ENOSPC
        from unittest.mock import Mock

        from legato.client.messages.large import Spool

        monkeypatch.setattr(Spool, "append", Mock(side_effect=OSError(ENOSPC, "No space left on device")))
        end.on_part(TransferPart(end.link, 1, one.tag, BODY, True, True, False, None))
    batch = AckBatch([one])
    client.channel.acknowledge(batch)
    second.exchange()
    assert batch.open == 0


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.DUPS_OK])
def test_a_close_acknowledges_what_a_call_is_about_to_return(brokers: list[Broker], mode: Mode) -> None:
    """`receive()` has given up the session's turn, and returns a message with its next step; another thread closes."""
    broker = brokers[0]
    client = Client(mode)
    end = client.consumer("c")
    client.connect(broker)
    broker.answer("c")
    broker.give("c", 1)
    delivery = end.incoming.inbox[0]
    end.handing = delivery
    end.incoming.inbox.popleft()
    end.accepted.append(delivery)
    client.channel.wake_receiver(end)
    client.channel.close()
    broker.exchange()
    end.handing = None  # `receive()` returns it
    while client.later:
        client.later.pop()()
    broker.exchange()
    assert broker.outcomes("c") == [(1, ACCEPTED)], "it comes again, and nothing tells that it was presented"
    broker.confirm("c", 1)
    assert broker.detached("c")


def test_what_went_elsewhere_while_a_call_gave_it_back_takes_no_room(brokers: list[Broker]) -> None:
    """The inbox was full of it when the link was attached again; when it was dropped nobody asked for more."""
    first, second, _ = brokers
    client = Client(Mode.AUTO)
    end = client.consumer("c", 1)
    consumer = consumer_steps(client, end)
    client.connect(first)
    first.answer("c")
    first.give("c", 1)
    assert consumer._take() is not None
    client.lose()
    consumer._take_back()  # the call was interrupted before it returned
    client.connect(second)
    link = second.answer("c", held=0, elsewhere=[1])
    assert drive(consumer._receive(0.01)) is None
    second.exchange()
    assert link.credit > 0, "nothing can come any more"


def test_what_comes_again_comes_once_though_a_call_gave_it_back(brokers: list[Broker]) -> None:
    first, second, _ = brokers
    client = Client(Mode.CLIENT, "ems")
    end = client.consumer("c")
    consumer = consumer_steps(client, end)
    client.connect(first)
    first.answer("c")
    first.give("c", 1)
    assert consumer._take() is not None
    client.lose()
    consumer._take_back()
    client.connect(second)
    second.answer("c", held=1)
    second.give("c", 1)
    assert len(end.incoming.inbox) == 1


@pytest.mark.parametrize("event", ["another one is confirmed", "another one is rejected"])
def test_what_the_application_has_stays_while_its_consumer_closes(brokers: list[Broker], event: str) -> None:
    """The broker has not answered yet that no more comes when something else happens that a close waits for."""
    broker = brokers[0]
    client = Client(Mode.INDIVIDUAL)
    end = client.consumer("c")
    client.connect(broker)
    broker.answer("c")
    broker.give("c", 1, 2)
    one, two = client.receive(end), client.receive(end)
    batch = AckBatch([one])
    if event == "another one is confirmed":
        client.channel.acknowledge(batch)
        broker.exchange()
    end.release()
    if event == "another one is confirmed":
        broker.confirm("c", 1)
        assert batch.open == 0
    else:
        end.decide(one, DELIVERY_FAILED)
        broker.exchange()
    broker.giving["c"].drained()
    broker.exchange()
    assert end.released
    assert two.state is DeliveryState.HERE
    again = AckBatch([two])
    client.channel.acknowledge(again)
    broker.exchange()
    broker.confirm("c", 2)
    assert again.outcome(two) is AcknowledgementOutcome.ACCEPTED
    assert broker.detached("c")


@pytest.mark.parametrize("contract", ["ems", "gigaspaces", "hornetq"])
@pytest.mark.parametrize("truth", [True, False])
def test_an_acknowledgement_of_what_a_closed_consumer_received_tells_the_truth_after_a_failover(
    brokers: list[Broker], contract: str, truth: bool
) -> None:
    """Contracts that present again what was not acknowledged: nothing can be presented, but the outcome can be had."""
    first, second, _ = brokers
    client = Client(Mode.CLIENT, contract)
    end = client.consumer("c")
    client.connect(first)
    first.answer("c")
    first.give("c", 1)
    one = client.receive(end)
    end.release()
    first.exchange()
    first.giving["c"].drained()
    first.exchange()
    assert end.released
    batch = AckBatch([one], resolved=True)
    client.channel.acknowledge(batch)
    first.exchange()
    assert (1, ACCEPTED) in first.outcomes("c")
    client.lose()
    client.connect(second)
    second.answer("c", held=0, elsewhere=[] if truth else [1])
    assert batch.open == 0
    expected = AcknowledgementOutcome.ACCEPTED if truth else AcknowledgementOutcome.WENT_ELSEWHERE
    assert batch.outcome(one) is expected


@pytest.mark.parametrize("how", ["rollback() is interrupted", "the connection is started"])
def test_nothing_comes_before_what_is_rolled_back_does(how: str) -> None:
    """Messages behind it came, went back, and came again behind those that were sent meanwhile."""
    broker = Broker()
    client = TransactedClient()
    client.connect(broker)
    broker.attach(COORDINATOR)
    broker.declare(b"1")
    link = broker.giving[CONSUMER]
    client.received_by.prefetch = 10
    link.accept()
    broker.exchange()
    link.send(BODY, (1).to_bytes(8, "big"))
    broker.exchange()
    client.present(client.received_by.incoming.inbox.popleft())
    ended, client.current = client.current, Transaction()
    coordinator: Any = client.channel.coordinator
    coordinator.end(ended, False, client.current)
    broker.exchange()
    link.drained()
    discharge, _declare = broker.taken(COORDINATOR)
    if how == "rollback() is interrupted":
        client.channel.look_again()
    else:
        client.channel.grant()
    broker.exchange()
    assert link.credit == 0, "something else may come before"
    broker.links[COORDINATOR].settle(discharge.delivery, ACCEPTED)
    broker.exchange()
    assert ended.outcome is False
    assert link.credit > 0
    broker.pair.free()


def test_the_error_of_an_answer_that_does_not_do_is_the_one_that_is_told(brokers: list[Broker]) -> None:
    """The broker's answer to our detach took its place, and was reported too."""
    client = Client(Mode.AUTO)
    end = client.consumer("c")
    client.connect(brokers[0])
    brokers[0].answer("c")
    client.lose()
    source: Any = end.source
    wrong = JMSError("it has no such selector")

    class Source:
        def __getattr__(self, name: str) -> Any:
            return getattr(source, name)

        def check_answer(self, answer: Any) -> None:
            raise wrong

    end.source = Source()  # type: ignore[assignment]
    client.connect(brokers[1])
    link = brokers[1].answer("c")
    link.close()
    brokers[1].exchange()
    assert client.reports == [wrong]
    assert end.error is wrong
