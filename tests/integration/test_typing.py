"""What editors and type checkers see of the client: mypy and pyright find the same mistakes in a user's program."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"  # type: ignore.*")


def mypy(program: Path) -> dict[int, str]:
    """Errors of mypy by line."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--follow-imports=silent", str(program)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found = re.finditer(rf"{program.name}:(\d+): error: (.*)$", run.stdout, re.MULTILINE)
    return {int(each[1]): each[2] for each in found}


def pyright(program: Path) -> dict[int, str]:
    """Errors of pyright by line, with the settings that a user has who set nothing."""
    settings = {"include": [str(program)], "extraPaths": [str(ROOT / "src")], "pythonVersion": "3.11"}
    (program.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    run = subprocess.run(
        [*command, "--project", str(program.parent)], cwd=program.parent, capture_output=True, text=True, check=False
    )
    assert run.stdout, run.stderr
    found = json.loads(run.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1: each["message"] for each in found if each["severity"] == "error"}


@pytest.mark.parametrize("name", ["mistakes.py", "mistakes_aio.py"])
@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])
def test_the_planted_mistakes_of_a_users_program_are_found_each_in_its_line(
    checker: Callable[[Path], dict[int, str]], name: str, tmp_path: Path
) -> None:
    """Without a method's type, that is with what editors show as `Unknown`, none of them is."""
    lines = (ROOT / "typing_tests" / name).read_text().splitlines()
    planted = {number: line for number, line in enumerate(lines, 1) if MARK.search(line)}
    program = tmp_path / name
    program.write_text("\n".join(MARK.sub("", line) for line in lines) + "\n")
    found = checker(program)
    for mistake in ("prefetc=", "many", "sendd", "42", "timeout_ms", "txt", "comit"):
        assert any(mistake in planted[number] for number in found), (mistake, found)
    assert found.keys() <= planted.keys()
