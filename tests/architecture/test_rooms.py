"""The list in CONTRIBUTING.md of what is where names files that there are, and names in them."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "CONTRIBUTING.md").read_text().split("\n## Where is ...?\n")[1].split("\n## ")[0]
ROWS = [line.strip("| ").split(" | ") for line in SECTION.splitlines() if line.startswith("| ")][1:]
PLACE = re.compile(r"`([\w/]+\.py)`: `([\w.]+)`")


def test_each_of_the_ten_questions_has_an_answer() -> None:
    assert len(ROWS) == 10
    answers = {row[0]: PLACE.findall(row[1]) for row in ROWS}
    assert [question for question, places in answers.items() if not places] == ["the text of an error"]


def test_each_file_has_the_name_beside_it() -> None:
    places = PLACE.findall(SECTION)
    assert len(places) >= 20
    assert [(file, name) for file, name in places if not has(file, name)] == []


def test_no_file_is_named_that_there_is_not() -> None:
    sources = {file for file in re.findall(r"`([\w/]+\.py)`", SECTION) if not file.startswith("tests/")}
    pages = set(re.findall(r"`([\w/]+\.md)`", SECTION))
    assert {file for file in sources if not (ROOT / "src" / "legato" / file).exists()} == set()
    assert {file for file in pages if not (ROOT / file).exists()} == set()


def test_a_name_that_there_is_not_is_found() -> None:
    assert has("core/redelivery.py", "Redelivery.fail")
    assert not has("core/redelivery.py", "Redelivery.succeed")
    assert not has("core/redelivering.py", "Redelivery.fail")


def has(file: str, name: str) -> bool:
    """Whether a module defines a class, function, constant, method or field of that name."""
    path = ROOT / "src" / "legato" / file
    body: list[ast.stmt] = ast.parse(path.read_text()).body if path.exists() else []
    for part in name.split("."):
        found = [statement for statement in body if part in _defined(statement)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [statement.name]
    if isinstance(statement, ast.AnnAssign):
        return [ast.unparse(statement.target)]
    return [ast.unparse(target) for target in statement.targets] if isinstance(statement, ast.Assign) else []
