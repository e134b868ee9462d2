"""How consumers look on the wire: amqp.md's table A3, row by row, so that Qpid JMS can take over a subscription."""

from __future__ import annotations

import pytest

from legato.amqp.codec.types import Described, ULong
from legato.amqp.engine.terminus import Terminus
from legato.client.links.subscriptions import Subscriptions
from legato.client.mapping.source import Source, checked_name
from legato.client.messages.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic, checked
from legato.errors import IllegalStateError, InvalidDestinationError, JMSError

QUEUE, TOPIC = Queue("orders"), Topic("prices")


@pytest.mark.parametrize(
    ("source", "durable", "expiry_policy", "distribution_mode", "capabilities"),
    [
        (Source(destination=QUEUE), 0, "link-detach", None, ["queue"]),
        (Source(destination=QUEUE, browsed=True), 0, "link-detach", "copy", ["queue"]),
        (Source(destination=TOPIC), 0, "link-detach", None, ["topic"]),
        (Source(destination=TOPIC, durable=True), 2, "never", "copy", ["topic"]),
        (Source(destination=TOPIC, durable=True, shared=True), 2, "never", "copy", ["topic", "shared"]),
        (
            Source(destination=TOPIC, durable=True, shared=True, everybodys=True),
            2,
            "never",
            "copy",
            ["topic", "shared", "global"],
        ),
        (Source(destination=TOPIC, shared=True), 0, "link-detach", None, ["topic", "shared"]),
        (
            Source(destination=TOPIC, shared=True, everybodys=True),
            0,
            "link-detach",
            None,
            ["topic", "shared", "global"],
        ),
        (Source(destination=TemporaryQueue("t")), 0, "link-detach", None, ["temporary-queue"]),
        (Source(destination=TemporaryTopic("t")), 0, "link-detach", None, ["temporary-topic"]),
    ],
)
def test_every_kind_of_consumer_has_its_row(
    source: Source, durable: int, expiry_policy: str, distribution_mode: str | None, capabilities: list[str]
) -> None:
    terminus = source.terminus()
    assert terminus.address == source.destination.name
    assert (terminus.durable, terminus.expiry_policy) == (durable, expiry_policy)
    assert (terminus.distribution_mode, terminus.capabilities) == (distribution_mode, capabilities)
    assert len(terminus.outcomes) == 4
    assert terminus.filters == {}


def test_filters_are_those_of_qpid_jms() -> None:
    filters = Source(destination=TOPIC, selector="a = 1", no_local=True).terminus().filters
    assert filters == {
        "no-local": Described(ULong(0x468C00000003), "NoLocalFilter{}"),
        "jms-selector": Described(ULong(0x468C00000004), "a = 1"),
    }


def test_a_broker_that_does_not_apply_the_selector_is_not_believed() -> None:
    source = Source(destination=QUEUE, selector="a = 1")
    source.check_answer(Terminus(filters={"jms-selector": "a = 1"}))
    with pytest.raises(JMSError):
        source.check_answer(Terminus())


def test_links_of_a_shared_subscription_have_names_of_their_own() -> None:
    names = Subscriptions()

    def take(name: str, *, durable: bool, everybodys: bool) -> str:
        return names.take_shared(name, object(), durable=durable, everybodys=everybodys)

    assert [take("s", durable=True, everybodys=False) for _ in range(3)] == ["s", "s|2", "s|3"]
    assert [take("g", durable=True, everybodys=True) for _ in range(2)] == ["g|global", "g|global2"]
    assert [take("v", durable=False, everybodys=False) for _ in range(2)] == ["v|volatile1", "v|volatile2"]
    assert [take("w", durable=False, everybodys=True) for _ in range(2)] == ["w|global-volatile1", "w|global-volatile2"]


def test_a_name_comes_again_only_when_all_links_of_its_subscription_have_gone() -> None:
    names = Subscriptions()
    names.take_shared("s", 1, durable=True, everybodys=False)
    names.take_shared("s", 2, durable=True, everybodys=False)
    names.release("s", 1, durable=True, shared=True)
    assert names.take_shared("s", 3, durable=True, everybodys=False) == "s|3"
    names.release("s", 2, durable=True, shared=True)
    names.release("s", 3, durable=True, shared=True)
    assert names.take_shared("s", 4, durable=True, everybodys=False) == "s"


def test_a_name_is_given_back_by_who_has_it_however_often_that_is_said() -> None:
    names = Subscriptions()
    names.take_unshared("d", 1)
    names.release("d", 2, durable=True, shared=False)
    with pytest.raises(IllegalStateError):
        names.check_unused("d")
    for _ in range(2):
        names.release("d", 1, durable=True, shared=False)
    names.check_unused("d")
    names.take_shared("s", 1, durable=True, everybodys=False)
    names.take_shared("s", 2, durable=True, everybodys=False)
    for _ in range(2):
        names.release("s", 1, durable=True, shared=True)
    with pytest.raises(IllegalStateError):
        names.check_unused("s")
    for owner in (2, 1):
        names.release("s", owner, durable=True, shared=True)
    names.check_unused("s")


def test_an_unshared_subscription_excludes_all_others_of_its_name() -> None:
    names = Subscriptions()
    assert names.take_unshared("d", 1) == "d"
    for taken in (
        lambda: names.take_unshared("d", 2),
        lambda: names.take_shared("d", 2, durable=True, everybodys=False),
        lambda: names.check_unused("d"),
    ):
        with pytest.raises(IllegalStateError):
            taken()
    assert names.take_shared("d", 2, durable=False, everybodys=False) == "d|volatile1"
    names.release("d", 1, durable=True, shared=False)
    names.check_unused("d")
    names.take_shared("d", 1, durable=True, everybodys=False)
    with pytest.raises(IllegalStateError):
        names.take_unshared("d", 2)


@pytest.mark.parametrize("name", ["", "a|b", None, 3])
def test_the_bar_cannot_be_part_of_a_subscriptions_name(name: object) -> None:
    with pytest.raises(InvalidDestinationError):
        checked_name(name)


@pytest.mark.parametrize(("name", "said"), [("", "is empty"), (None, "this is None"), (3, "this is 3")])
def test_a_destination_without_a_name_says_what_it_has_instead(name: object, said: str) -> None:
    with pytest.raises(InvalidDestinationError, match=said):
        checked(Queue(name))  # type: ignore[arg-type]


def test_destinations_are_equal_by_name_and_kind() -> None:
    assert Queue("a") == Queue("a")
    assert hash(Queue("a")) == hash(Queue("a"))
    assert Queue("a") != Topic("a")
    assert Queue("a") != TemporaryQueue("a")
    assert len({Queue("a"), Queue("a"), Topic("a")}) == 2
    assert (str(Queue("a")), repr(Topic("a"))) == ("a", "Topic('a')")
