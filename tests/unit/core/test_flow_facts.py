"""What the log says of messages that carry calls of flows."""

from legato.core.facts import MessageMoved, MessageOfFlow, MessagePublished, MessageStored
from legato.core.topics import Node
from legato.core.traits import FlowCall, Traits
from tests.support.scenario import Scenario

CALL = ("flow", "trace", "stage", "send", 1, 1)
BODY = b'{"flow":"flow"};body'
"""As the support for the core's tests reads it: the same call."""


def send(s: Scenario, traits: Traits, to: Node | None = None) -> None:
    s.broker.publisher.publish(to or s.broker.directory.queue("q"), BODY, "one", "one", traits)
    s.run()


def fact(queue: int, seq: int, call: FlowCall = CALL) -> MessageOfFlow:
    return MessageOfFlow(queue, seq, *call)


def of_flows(s: Scenario) -> list[MessageOfFlow]:
    return [each for each in s.facts if isinstance(each, MessageOfFlow)]


def stored(s: Scenario) -> list[tuple[int, int]]:
    return [(each.queue, each.seq) for each in s.facts if isinstance(each, MessageStored)]


def test_a_message_of_flows_has_a_fact_for_each_call_beside_the_one_that_it_is_stored() -> None:
    s = Scenario()
    other = ("flow 2", "trace 2", "stage", "reply", 4, 1)
    send(s, Traits(flows=(CALL, other)))
    [place] = stored(s)
    assert of_flows(s) == [fact(*place), fact(*place, other)]


def test_a_message_of_no_flow_has_none() -> None:
    s = Scenario()
    send(s, Traits(priority=7))
    assert of_flows(s) == []


def test_of_a_publication_the_fact_names_the_topic() -> None:
    s = Scenario()
    topic = s.broker.directory.topic("t")
    s.broker.subscriptions.subscribe(topic, "mine", container="c", durable=True, shared=False)
    send(s, Traits(flows=(CALL,)), topic)
    [published] = [each for each in s.facts if isinstance(each, MessagePublished)]
    assert of_flows(s) == [fact(topic.id, published.seq)]


def test_in_a_transaction_it_comes_with_the_commit() -> None:
    s = Scenario()
    txn = s.broker.transactions.declare("me")
    transaction = s.broker.transactions.find(txn, "me")
    assert transaction is not None
    s.broker.transactions.publish(transaction, s.broker.directory.queue("q"), BODY, "one", Traits(flows=(CALL,)))
    s.run()
    assert of_flows(s) == []
    s.broker.transactions.discharge(txn, "me", fail=False, token="done")
    s.run()
    assert of_flows(s) == [fact(*stored(s)[0])]


def test_a_delayed_message_has_its_fact_where_it_is_worked_on() -> None:
    s = Scenario()
    send(s, Traits(deliver_us=s.now_us + 1_000_000, flows=(CALL,)))
    assert of_flows(s) == []
    s.wait(2)
    [moved] = [each for each in s.facts if isinstance(each, MessageMoved)]
    assert of_flows(s) == [fact(moved.to_queue, moved.to_seq)]


def test_what_could_not_be_stored_has_no_fact() -> None:
    s = Scenario()
    s.full = True
    send(s, Traits(flows=(CALL,)))
    assert list(s.refused) == ["one"]
    assert of_flows(s) == []
