"""Under which names subscriptions are kept (amqp.md A3)."""

import pytest

from legato.amqp.engine.terminus import Terminus
from legato.server.links.subscription_names import durable_name, subscription_name

DURABLE = {"durable": 2, "expiry_policy": "never"}


@pytest.mark.parametrize(
    ("link", "fields", "capabilities", "stored"),
    [
        ("sub", DURABLE, [], "subscription://cts/sub"),
        ("sub", DURABLE, ["shared"], "subscription://cts/sub"),
        ("sub|2", DURABLE, ["shared"], "subscription://cts/sub"),
        ("sub|global", DURABLE, ["shared", "global"], "subscription:///sub"),
        ("sub|global2", DURABLE, ["shared", "global"], "subscription:///sub"),
        ("sub|volatile1", {}, ["shared"], "volatile://cts/sub"),
        ("sub|global-volatile1", {}, ["shared", "global"], "volatile:///sub"),
        ("qpid-jms:receiver:1", {}, [], "volatile://cts//qpid-jms%3Areceiver%3A1"),
        ("a/b", DURABLE, [], "subscription://cts/a%2Fb"),
        ("not|shared", DURABLE, [], "subscription://cts/not%7Cshared"),
    ],
)
def test_links_of_one_subscription_have_one_name(
    link: str, fields: dict[str, object], capabilities: list[str], stored: str
) -> None:
    source = Terminus(address="t", capabilities=["topic", *capabilities], **fields)  # type: ignore[arg-type]
    name = subscription_name(link, source, "cts")
    assert name.stored == stored
    assert name.durable is bool(fields)
    assert name.shared is ("shared" in capabilities)


@pytest.mark.parametrize(
    ("link", "stored"),
    [("sub", "subscription://cts/sub"), ("sub|global", "subscription:///sub"), ("sub|global3", "subscription:///sub")],
)
def test_a_link_without_a_source_names_what_it_ends(link: str, stored: str) -> None:
    assert durable_name(link, "cts") == stored
