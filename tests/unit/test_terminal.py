"""Tables on a terminal: however narrow it is, and however long the names are, no heading, word or figure is cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel, ValidationError

from legato.administration.dead_letters import TRACE_ID, Letter, chosen
from legato.administration.flow_traces import Step
from legato.cli import dead_letter_rendering, drill, query_output, rendering
from legato.cli.flows import print_steps
from legato.client import TextMessage
from legato.core.dead_letters import DEAD_LETTER_COUNT, DEAD_LETTERED_AT_MS, EXCEPTION
from legato.terminal import Terminal

LONG = "subscription://a-client-with-a-long-name.example/prices.of.the.whole.world"
FIGURES: dict[str, Any] = {
    "depth": 123_456_789, "bytes": 1023 << 30, "in_flight": 10_000, "consumers": 100, "head_age_s": 1e7,
    "stored_per_s": 12_345.0, "acknowledged_per_s": 12_345.0, "paused": True, "subscriptions": 1_000, "temporary": True,
}  # fmt: skip


def print_queues(name: str) -> list[str]:
    rendering.print_nodes({"name": "queue"} | rendering.QUEUE_COLUMNS, [FIGURES | {"name": name}])
    return ["in flight", "consumers", "oldest", "123,456,789", "1023 GiB", name]


def print_subscriptions(name: str) -> list[str]:
    columns = {"name": "name", "address": "topic"} | rendering.QUEUE_COLUMNS
    rendering.print_nodes(columns, [FIGURES | {"name": name, "address": "prices.of.the.whole.world"}])
    return ["topic", "in flight", "consumers", "123,456,789", name, "prices.of.the.whole.world"]


def print_topics(name: str) -> list[str]:
    columns = {"name": "name", "subscriptions": "subscriptions", "bytes": "size", "temporary": "temporary"}
    rendering.print_nodes(columns, [FIGURES | {"name": name}])
    return ["subscriptions", "1,000", "temporary", name]


def letter(name: str) -> Letter:
    """A dead letter of a message whose id, trace id and reason have that name."""
    message = TextMessage("tea")
    message.message_id = f"ID:{name}"
    properties = {
        EXCEPTION: f"ConnectionRefusedError: no connection to {name}",
        TRACE_ID: f"order:{name}",
        DEAD_LETTERED_AT_MS: 1,
        DEAD_LETTER_COUNT: 3,
    }
    return Letter(f"DLQ.{name}", message, properties)


def print_letters(name: str) -> list[str]:
    found = [letter(name), letter(name + "2")]
    dead_letter_rendering.print_letters(found, as_json=False)
    return ["attempts", "cause", "trace id", "reason", found[0].cause, "ConnectionRefusedError:", f"order:{name}"]


def test_ids_of_one_producer_are_told_apart_by_their_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were shown whole, as they begin alike; what is shown names the letter for the other commands."""
    monkeypatch.setenv("COLUMNS", "200")
    one, other = "3f6d2a1e-5b7c-4a0f-9c3d-0a1b2c3d4e5f", "8a6d2a1e-5b7c-4a0f-9c3d-0a1b2c3d4e5f"
    found = [letter(f"{one}:{number}") for number in (1, 11, 12, 211)] + [letter(f"{other}:11")]
    dead_letter_rendering.print_letters(found, as_json=False)
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines() if f"order:{one[:8]}" in line]
    assert shown[0] == "3f6d2a1e...5f:1"
    assert len(shown) == 4
    for each, name in zip(found, shown, strict=False):
        assert chosen(found, "DLQ.tea", [name]) == [each]


def test_of_a_body_that_pydantic_refused_the_field_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    class Book(BaseModel):
        title: str
        pages: int

    def refused(body: str) -> Letter:
        with pytest.raises(ValidationError) as raised:
            Book.model_validate_json(body)
        message = TextMessage(body)
        message.message_id = f"ID:{body}"
        return Letter("DLQ.tea", message, {EXCEPTION: f"ValidationError: {raised.value}"})

    letters = [refused('{"title": "tea"}'), refused('{"title": "tea", "pages": "ten"}'), refused('{"title": 1}')]
    dead_letter_rendering.print_letters(letters, as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "ValidationError: 1 validation error for Book: pages: Field required" in said
    assert "2 validation errors for Book: title: Input should be a valid string" in said
    assert len({each.cause for each in letters}) == 3


def print_causes(name: str) -> list[str]:
    dead_letter_rendering.print_causes([({"name": name, "depth": 7}, [letter(name)])], as_json=False)
    return [letter(name).cause, "reissued 2x", "ConnectionRefusedError:", name]


def print_letter(name: str) -> list[str]:
    dead_letter_rendering.print_letter(letter(name), as_json=False)
    return ["dead letter", "3 times so far", f"order:{name}"]


def print_flow(name: str) -> list[str]:
    step = Step(f"order:{name}", "f", 1, name, "request", name, 1, 2_000_000, 3_000, 4_000, then="replied to " + name)
    print_steps([step, replace(step, sent_us=7_000_000)])
    return ["call", "request", "database", "2.00 s", "3.0 ms", "replied", name]


def print_answer(name: str) -> list[str]:
    columns = {"destination": [name], "count_star()": [12_345_678], "median(waited_ms)": [0.125]}
    columns |= {f"column_{number}": ["consumed"] for number in range(4)}
    batch = pa.RecordBatch.from_pydict(columns)
    query_output._table(batch.schema, iter([batch]), 0, Terminal())
    return ["count_star()", "12345678", "median(waited_ms)", "0.125", "column_3", name]


def print_faults(name: str) -> list[str]:
    drill._show_list()
    return ["between-database-commit-and-messaging-commit", "SIGKILL to the primary"]


PRINTS: list[Callable[[str], list[str]]] = [
    *(print_queues, print_subscriptions, print_topics, print_letters, print_causes, print_letter, print_flow),
    *(print_answer, print_faults),
]


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("name", ["tea", "orders.eu.north.fast", LONG], ids=["short", "middling", "long"])
@pytest.mark.parametrize("prints", PRINTS, ids=lambda prints: prints.__name__)
def test_no_table_cuts_anything(
    prints: Callable[[str], list[str]],
    name: str,
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Headings broke in the middle of words at 80 columns, and at 60 figures were cut."""
    monkeypatch.setenv("COLUMNS", str(columns))
    whole = prints(name)
    shown = capsys.readouterr().out
    is_wrapped_by_the_terminal = prints is print_letter
    assert max(map(len, shown.splitlines())) <= columns or is_wrapped_by_the_terminal
    assert "…" not in shown
    for words in whole:
        for word in words.split():
            assert word in shown or ((len(word) > 16 and word in "".join(shown.split())) or _folded(word, shown)), word


def _folded(word: str, shown: str) -> bool:
    """Whether a long word is there in pieces of at least 16 letters, one below the other."""
    begin = 0
    for line in shown.splitlines():
        size = next((size for size in range(len(word) - begin, 0, -1) if word[begin : begin + size] in line), 0)
        if size >= min(16, len(word) - begin):
            begin += size
        if begin == len(word):
            return True
    return False


def test_in_a_pipe_a_row_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`legato queues | grep` found half of a name."""
    monkeypatch.delenv("COLUMNS", raising=False)
    print_subscriptions(LONG)
    [_, row] = capsys.readouterr().out.splitlines()
    assert LONG in row
    assert "12,345" in row
