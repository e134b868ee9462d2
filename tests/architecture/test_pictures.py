"""The pictures of ARCHITECTURE.md are complete and true."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "legato"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
PACKAGES = sorted(file.parent.name for file in SOURCES.glob("*/__init__.py"))
NAMES_END = "│"
"""Before it on a line of a picture are names of modules and packages, behind it what they are."""


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_has_a_section_with_a_picture_that_names_all_of_it(package: str) -> None:
    section = section_of(PAGE, package)
    assert "```text\n" in section
    assert sorted(name for name in rooms(package) if not re.search(rf"\b{name}\b", section)) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_a_line_of_a_picture_imports_nothing_from_a_line_above_it(package: str) -> None:
    assert list(upward(section_of(PAGE, package), package)) == []


def test_an_arrow_that_points_up_is_found() -> None:
    section = "```text\n lock  members │ who is primary\n watcher       │ a watch\n```\n"
    assert list(upward(section, "ha")) == ["watcher imports lock"]


def section_of(page: str, package: str) -> str:
    """The section of a package, without its heading."""
    assert f"\n## {package}\n" in page, f"{package} has no section"
    return page.split(f"\n## {package}\n", 1)[1].split("\n## ", 1)[0]


def rooms(package: str) -> set[str]:
    """The modules and packages in a package."""
    modules = {file.stem for file in (SOURCES / package).glob("*.py")}
    packages = {file.parent.name for file in (SOURCES / package).glob("*/__init__.py")}
    return (modules | packages) - {"__init__", "__main__"}


def upward(section: str, package: str) -> Iterator[str]:
    """The imports from a line of a section's first picture to a line above it.

    Pictures with `>` have columns and are for people alone; `lint-imports` has the layers of those packages.
    """
    picture = section.split("```text\n")[1].split("```")[0]
    if ">" in picture:
        return
    line_of: dict[str, int] = {}
    for number, line in enumerate(picture.splitlines()):
        for name in set(line.partition(NAMES_END)[0].split()) & rooms(package):
            line_of[name] = number
    for name in sorted(line_of):
        for other in sorted(imported_by(package, name)):
            if line_of.get(other, line_of[name]) < line_of[name]:
                yield f"{name} imports {other}"


def imported_by(package: str, name: str) -> set[str]:
    """The modules and packages of a package that one of them imports, for types too."""
    directory = SOURCES / package
    files = (
        [directory / f"{name}.py"] if (directory / f"{name}.py").exists() else sorted((directory / name).rglob("*.py"))
    )
    prefix = f"legato.{package}."
    modules = [module for file in files for module in _imports(ast.parse(file.read_text()))]
    return {module.removeprefix(prefix).split(".")[0] for module in modules if module.startswith(prefix)} - {name}


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
