"""Which filters of a source are applied."""

from typing import Any

import pytest

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import encode_message
from legato.amqp.codec.types import Described, Symbol, ULong
from legato.amqp.engine.terminus import Terminus
from legato.server.links.filters import NO_LOCAL, SELECTOR, Filters, read_filters
from legato.server.links.refused import Refused


def filters(**given: Any) -> Filters:
    return read_filters(Terminus(address="q", filters=given))


def body(**properties: Any) -> bytes:
    return encode_message(header=Header(), application_properties=properties)


def test_without_filters_everything_matches() -> None:
    assert filters() == Filters()


def test_a_blank_selector_is_none_and_is_applied() -> None:
    """Jakarta Messaging 8.3: an empty selector is as none."""
    found = filters(a=Described(ULong(SELECTOR), "  "))
    assert (found.selector, found.matches, list(found.applied)) == ("", None, ["a"])


def test_of_several_selectors_all_hold() -> None:
    found = filters(a=Described(ULong(SELECTOR), "x = 1 OR x = 2"), b=Described(ULong(SELECTOR), "y = 1"))
    assert found.matches is not None
    assert [found.matches(body(x=x, y=y)) for x, y in ((1, 1), (2, 1), (1, 2), (3, 1))] == [True, True, False, False]


def test_no_local_can_be_ignored() -> None:
    found = filters(a=Described(ULong(NO_LOCAL), []), b=Described(ULong(SELECTOR), "x = 1"))
    assert found.no_local_key == "a"
    found.ignore_no_local()
    assert (found.no_local_key, list(found.applied)) == ("", ["b"])


def test_what_is_not_known_is_not_applied() -> None:
    assert filters(a=Described(Symbol("example:other"), 1), b="no filter at all", c=Described([1], 1)).applied == {}


@pytest.mark.parametrize("selector", ["x =", "x = 'open", 7])
def test_a_selector_that_is_none_is_refused(selector: Any) -> None:
    with pytest.raises(Refused) as refused:
        filters(a=Described(ULong(SELECTOR), selector))
    assert refused.value.condition == "amqp:invalid-field"
