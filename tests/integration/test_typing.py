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


PROGRAMS = ("mistakes.py", "mistakes_aio.py")
Errors = dict[str, dict[int, str]]
"""By program and line."""


def mypy(directory: Path) -> Errors:
    """Errors of mypy."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--follow-imports=silent"]
    run = subprocess.run(
        [*command, *(str(directory / name) for name in PROGRAMS)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode in (0, 1), run.stdout + run.stderr
    errors: Errors = {name: {} for name in PROGRAMS}
    for each in re.finditer(r"(\w+\.py):(\d+): error: (.*)$", run.stdout, re.MULTILINE):
        errors[each[1]][int(each[2])] = each[3]
    return errors


def pyright(directory: Path) -> Errors:
    """Errors of pyright, with the settings that a user has who set nothing."""
    settings = {"include": list(PROGRAMS), "extraPaths": [str(ROOT / "src")], "pythonVersion": "3.11"}
    (directory / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    run = subprocess.run(
        [*command, "--project", str(directory)], cwd=directory, capture_output=True, text=True, check=False
    )
    assert run.stdout, run.stderr
    errors: Errors = {name: {} for name in PROGRAMS}
    for each in json.loads(run.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            errors[Path(each["file"]).name][each["range"]["start"]["line"] + 1] = each["message"]
    return errors


@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])
def test_the_planted_mistakes_of_users_programs_are_found_each_in_its_line(
    checker: Callable[[Path], Errors], tmp_path: Path
) -> None:
    """Without a method's type, that is with what editors show as `Unknown`, none of them is."""
    planted: Errors = {}
    for name in PROGRAMS:
        lines = (ROOT / "typing_tests" / name).read_text().splitlines()
        planted[name] = {number: line for number, line in enumerate(lines, 1) if MARK.search(line)}
        (tmp_path / name).write_text("\n".join(MARK.sub("", line) for line in lines) + "\n")
    errors = checker(tmp_path)
    for name, found in errors.items():
        for mistake in ("prefetc=", "many", "sendd", "42", "timeout_ms", "txt", "comit"):
            assert any(mistake in planted[name][number] for number in found), (name, mistake, found)
        assert found.keys() <= planted[name].keys()
