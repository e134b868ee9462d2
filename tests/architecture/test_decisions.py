"""The index of the decisions lists each of them by its title, in order, and says which numbers there are not."""

import re
from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"
FILES = sorted(DECISIONS.glob("[0-9]*.md"))
INDEX = (DECISIONS / "README.md").read_text()


def test_the_index_lists_every_decision_by_its_title() -> None:
    expected = [
        f"| {file.name[:4]} | [{file.read_text().splitlines()[0].removeprefix('# ')}]({file.name}) |" for file in FILES
    ]
    assert [line for line in INDEX.splitlines() if re.match(r"\| \d", line)] == expected


def test_each_number_is_given_once() -> None:
    numbers = [file.name[:4] for file in FILES]
    assert numbers == sorted(set(numbers))


def test_the_index_says_which_numbers_are_missing() -> None:
    numbers = {int(file.name[:4]) for file in FILES}
    sentence = re.search(r"The numbers ([\d, and]+) were never given", INDEX)
    assert sentence is not None
    assert {int(number) for number in re.findall(r"\d+", sentence[1])} == set(range(1, 64)) - numbers
