"""The map of groups: who serves an address, what makes a map unusable, which of two maps is the later."""

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.errors import ConfigError
from legato.groups.group_map import (
    ENCODED_BYTES_MAX,
    GROUPS_MAX,
    PINS_MAX,
    Directory,
    Group,
    GroupMap,
    Pin,
    decode,
    from_tables,
    host_and_port,
    successor,
)
from legato.groups.moves import least_share, moves
from tests.support.examples import examples

TWO = """
revision = 3

[[group]]
name = "orders"
brokers = ["one.example:5672", "two.example:5672"]

[[group]]
name = "rest"
brokers = ["[::1]:5673"]
weight = 2

[[pin]]
match = "orders.#"
group = "orders"

[[pin]]
match = "orders.archive.*"
group = "rest"

[[pin]]
match = "orders.archive.2024"
group = "orders"
"""


def two() -> GroupMap:
    return from_tables(tomllib.loads(TWO))


def test_the_most_specific_pin_decides() -> None:
    directory = Directory(two())
    assert directory.group_of("orders").name == "orders"
    assert directory.group_of("orders.new.today").name == "orders"
    assert directory.group_of("orders.archive.2025").name == "rest"
    assert directory.group_of("orders.archive.2024").name == "orders"
    assert directory.pinned_to("invoices") is None


def test_what_is_not_pinned_is_shared_out_by_weight() -> None:
    directory = Directory(two())
    found = [directory.group_of(f"queue.{number}").name for number in range(12_000)]
    assert found.count("rest") / len(found) == pytest.approx(2 / 3, abs=0.02)
    # The cache of addresses, which was full in between, changes nothing.
    assert found[:100] == [directory.group_of(f"queue.{number}").name for number in range(100)]


def test_a_map_is_the_same_after_it_was_bytes() -> None:
    assert decode(two().encode()) == two()


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode) | st.from_type(dict).map(repr).map(str.encode))
@settings(max_examples=examples(200), deadline=None)
def test_what_is_no_map_is_refused_with_a_sentence(data: bytes) -> None:
    with pytest.raises(ConfigError, match="map of groups"):
        decode(data)


@given(st.data())
@settings(max_examples=examples(200), deadline=None)
def test_a_map_with_bytes_changed_is_a_map_or_refused(data: st.DataObject) -> None:
    encoded = bytearray(two().encode())
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode(bytes(encoded))
    except ConfigError:
        return
    assert Directory(found).group_of("orders.1") in found.group


def changed(**fields: Any) -> dict[str, Any]:
    return tomllib.loads(TWO) | fields


GROUP = {"name": "orders", "brokers": ["one.example:5672"]}


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ([], "map of groups"),
        (changed(format=2), "has format 2; this version of Legato reads format 1"),
        (changed(revision=0), r"revision"),
        (changed(group=[]), "from 1 to 4,096 groups"),
        (changed(colour="red"), "colour"),
        (changed(group=[GROUP, GROUP], pin=[]), "two groups 'orders'"),
        (changed(group=[GROUP, GROUP | {"name": "two"}], pin=[]), "is in two groups, 'orders' and 'two'"),
        (changed(group=[GROUP | {"name": "Orders"}], pin=[]), "lower-case letters"),
        (changed(group=[GROUP | {"name": "localhost"}], pin=[]), "not localhost"),
        (changed(group=[GROUP | {"name": "o" * 49}], pin=[]), "up to 48"),
        (changed(group=[GROUP | {"brokers": []}], pin=[]), "has 0 brokers: give 1 to 16"),
        (changed(group=[GROUP | {"brokers": ["one.example"]}], pin=[]), "not HOST:PORT"),
        (changed(group=[GROUP | {"brokers": ["one.example:70000"]}], pin=[]), "no port from 1 to 65535"),
        (changed(group=[GROUP | {"weight": 0.0}], pin=[]), "give 0.001 to 1000"),
        (changed(group=[GROUP | {"weight": float("nan")}], pin=[]), "give 0.001 to 1000"),
        (changed(pin=[{"match": "a", "group": "none"}]), "there is no such group"),
        (changed(pin=[{"match": "", "group": "rest"}]), "needs match"),
        (changed(pin=[{"match": "a.b*", "group": "rest"}]), "mixes a wildcard and text"),
        (changed(pin=[{"match": "a", "group": "rest"}] * 2), "pins 'a' twice"),
    ],
)
def test_a_map_that_cannot_be_used_says_why(raw: object, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        from_tables(raw)


def test_a_map_is_bounded() -> None:
    groups = [{"name": f"g{number}", "brokers": [f"h:{number + 1}"]} for number in range(GROUPS_MAX + 1)]
    assert len(from_tables({"revision": 1, "group": groups[:-1]}).encode()) < ENCODED_BYTES_MAX
    with pytest.raises(ConfigError, match="4,097"):
        from_tables({"revision": 1, "group": groups})
    pins = [{"match": f"a.{number}", "group": "g0"} for number in range(PINS_MAX + 1)]
    with pytest.raises(ConfigError, match="at most 10,000 pins"):
        from_tables({"revision": 1, "group": groups[:1], "pin": pins})
    long = [{"match": f"{'a' * 500}.{number}", "group": "g0"} for number in range(2_000)]
    with pytest.raises(ConfigError, match="use fewer pins"):
        from_tables({"revision": 1, "group": groups[:1], "pin": long})
    with pytest.raises(ConfigError, match="at most"):
        decode(b" " * (ENCODED_BYTES_MAX + 1))


def test_the_host_of_a_broker_may_be_an_address_of_ipv6() -> None:
    assert host_and_port("[::1]:5673") == ("::1", 5673)


def test_a_later_map_has_a_higher_revision() -> None:
    now = two()
    later = GroupMap(4, now.group)
    assert successor(now, later) is later
    assert successor(now, two()) == now
    with pytest.raises(ConfigError, match="has revision 3, and there is a later one, 4:"):
        successor(later, now)
    with pytest.raises(ConfigError, match="still 3: give it the next one"):
        successor(now, GroupMap(3, now.group))


def test_the_least_moves_when_groups_come_and_go() -> None:
    addresses = [f"a.{number}" for number in range(6_000)]
    ten = GroupMap(1, tuple(Group(f"g{number}", (f"h:{number + 1}",)) for number in range(10)))
    eleven = GroupMap(2, (*ten.group, Group("g10", ("h:11",))))
    found = list(moves(ten, eleven, addresses))
    assert {move.group for move in found} == {"g10"}
    assert len(found) <= 1.2 * least_share(ten, eleven) * len(addresses)
    assert least_share(ten, eleven) == pytest.approx(1 / 11)
    back = list(moves(eleven, ten, addresses))
    assert {(move.address, move.group, move.former) for move in back} == {
        (move.address, move.former, move.group) for move in found
    }


def test_a_pin_moves_only_what_it_matches() -> None:
    ten = GroupMap(1, tuple(Group(f"g{number}", (f"h:{number + 1}",)) for number in range(10)))
    pinned = GroupMap(2, ten.group, (Pin("a.1.#", "g3"),))
    addresses = [f"a.{number}.x" for number in range(100)]
    assert {move.address for move in moves(ten, pinned, addresses)} <= {"a.1.x"}
