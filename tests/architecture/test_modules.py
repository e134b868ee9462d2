"""What holds for every file of the sources."""

import ast
import inspect
import re
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "src").rglob("*.py"))
RELATIVE = {"What", "Who", "Whoever", "Whatever", "Which", "Whether", "How", "Where", "When", "Those", "Such"}
"""A first line that begins so describes a thing before it is named, or instead."""


def test_a_module_says_in_its_first_line_what_it_is_for() -> None:
    assert [module for module in MODULES if not _is_said(_docstring(module))] == []


def _docstring(file: Path) -> str | None:
    """A module's docstring. The rest of the file is not read: to parse all files takes seconds."""
    with tokenize.open(file) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.STRING:
                return inspect.cleandoc(ast.literal_eval(token.string))
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                break
    return None


def _is_said(docstring: str | None) -> bool:
    """Whether there is a docstring, and its first line a sentence or the beginning of one."""
    first, *rest = (docstring or "").splitlines() or [""]
    return first.endswith((".", ":", ";", ",")) or bool(first and rest)


def test_a_first_line_names_its_subject_first() -> None:
    directories = ("src", "simulator", "bench", "interop", "tools", "tests/support")
    files = sorted(file for directory in directories for file in (ROOT / directory).rglob("*.py"))
    first_words = {file: (_docstring(file) or "A").split()[0] for file in files}
    assert [file for file, word in first_words.items() if word in RELATIVE] == []


def test_every_package_is_a_package() -> None:
    directories = {module.parent for module in MODULES} - {ROOT / "src"}
    assert [directory for directory in directories if not (directory / "__init__.py").exists()] == []


def test_the_lock_file_pins_every_package_exactly() -> None:
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) > 20
    assert [
        line for line in lines if not re.fullmatch(r"[\w.-]+==\S+( ; [^-]+)?(\s+--hash=sha256:[0-9a-f]{64})+", line)
    ] == []


def test_what_is_locked_is_installed_by_its_hashes() -> None:
    installing = [line for line in (ROOT / "Makefile").read_text().splitlines() if "requirements.lock" in line]
    assert any("pip install" in line and "--require-hashes" in line for line in installing)
    assert not any("pip install" in line and "--require-hashes" not in line for line in installing)
    locked = (ROOT / "requirements.lock").read_text()
    for package in tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]:
        assert f"\n{re.split('[>=<]', package)[0]}==" in locked, "what builds Legato is locked too"


def test_the_commands_that_the_readme_promises_are_in_the_makefile() -> None:
    promised = {line.split()[1] for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("make ")}
    makefile = (ROOT / "Makefile").read_text()
    assert promised >= {"demo", "test"}
    assert [target for target in promised if f"\n{target}:" not in makefile] == []


def test_what_a_merge_must_pass_is_the_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "\nmake test\n" in script.read_text()
