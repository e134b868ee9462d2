"""Each stated line of the contract is named by a test, and the page that says so is what the sources say."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tools.contract_table import PAGE, Line, Naming, by_line, complaints, names_in, namings, page, read_lines


@pytest.fixture(scope="module")
def named() -> Mapping[str, list[Naming]]:
    """The tests that name each line: all tests are parsed for it, once."""
    return by_line(namings())


def test_every_stated_line_is_named_by_a_test_and_every_name_is_a_line(named: Mapping[str, list[Naming]]) -> None:
    _, lines = read_lines()
    assert complaints(lines, named) == []


def test_a_line_that_only_slow_tests_name_is_complained_of() -> None:
    lines = {"A1": Line("A1", "S", "It holds.")}
    slow, quick = (Naming(Path("test_it.py"), "it holds", ["A1"], slow=slow) for slow in (True, False))
    assert complaints(lines, {"A1": [slow, quick]}) == []
    assert complaints(lines, {"A1": [slow]}) == ["no test of `make test` names A1: It holds."]
    assert complaints(lines, {}) == ["no test of `make test` names A1: It holds."]


def test_slow_tests_are_known_by_their_mark_or_that_of_their_file(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    told = 'def test_it() -> None:\n    """CONTRACT A1."""\n'
    (folder / "test_a.py").write_text(told)
    (folder / "test_b.py").write_text(f"@pytest.mark.slow\n{told}")
    (folder / "test_c.py").write_text(f"pytestmark = pytest.mark.slow\n{told}")
    assert [naming.slow for naming in namings(tmp_path)] == [False, True, True]


def test_the_page_is_what_make_contract_writes(named: Mapping[str, list[Naming]]) -> None:
    titles, lines = read_lines()
    assert PAGE.read_text() == page(titles, lines, named), "make contract"


@pytest.mark.parametrize(
    ("docstring", "names"),
    [
        ("CONTRACT A18.", ["A18"]),
        ("Promise 2; CONTRACT A10, E14-E16: whatever the kill hits; B1 too.", ["A10", "E14", "E15", "E16", "B1"]),
        ("CONTRACT C11(f), and C11c.", ["C11"]),
        ("CONTRACT E5, amqp.md A11.", ["E5"]),
        ("Nothing of B1.", []),
    ],
)
def test_a_docstring_names_lines_after_the_word_contract(docstring: str, names: list[str]) -> None:
    assert names_in(docstring) == names


def test_marks_are_one_of_three_and_facts_about_products_say_what_legato_does() -> None:
    _, lines = read_lines()
    assert {line.mark for line in lines.values()} == {"S", "X", "D"}
    assert [line.name for line in lines.values() if line.mark == "X" and not line.here] == []
