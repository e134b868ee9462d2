"""The site of the documentation: its navigation has each page, links lead somewhere, the commands are true."""

import re
import subprocess
from pathlib import Path

import pytest
from tools import cli_page, site_hooks

ROOT = Path(__file__).parents[2]
LISTED = re.findall(r"^ +- (?:[\w, ]+: )?([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)


def test_each_page_is_in_the_navigation_of_the_site() -> None:
    """Decisions are listed by their own index. A new page: add a line to `nav` of mkdocs.yml."""
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    made = {*site_hooks.PAGES.values(), *(f"api/{module}.md" for module in site_hooks.API)}
    listed = {page for page in pages | made if not re.match(r"decisions/0|README", page)}
    assert sorted(LISTED) == sorted(listed)


def test_no_file_has_the_marks_of_a_merge_that_was_not_finished() -> None:
    """mkdocs.yml had: the site could not be built, and its own test is left out where mkdocs is not installed."""
    marks = ["-e", "^<<<<<<< ", "-e", "^>>>>>>> ", "-e", "^[|]{7} "]
    found = subprocess.run(["git", "grep", "-nIE", *marks], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.stdout == ""


def test_the_page_of_commands_is_what_the_program_says() -> None:
    """`make cli-reference` writes it anew."""
    assert cli_page.PAGE.read_text() == cli_page.page(), "docs/reference/cli.md is stale: run `make cli-reference`"


@pytest.mark.parametrize(
    ("source", "page", "link", "expected"),
    [
        ("README.md", "index.md", "docs/howto/flows.md#what", "howto/flows.md#what"),
        ("README.md", "index.md", "docs/images/takeover.svg", "images/takeover.svg"),
        ("README.md", "index.md", "ARCHITECTURE.md", "project/architecture.md"),
        ("ARCHITECTURE.md", "project/architecture.md", "docs/glossary.md", "../glossary.md"),
        ("docs/howto/a.md", "howto/a.md", "flows.md", "flows.md"),
        ("docs/howto/a.md", "howto/a.md", "../../README.md", "../index.md"),
        ("docs/howto/a.md", "howto/a.md", "../../tests/conftest.py#L3", "../sources/tests/conftest.py.txt"),
        ("docs/howto/a.md", "howto/a.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("docs/howto/a.md", "howto/a.md", "#below", "#below"),
    ],
)
def test_links_lead_where_the_site_has_the_file(source: str, page: str, link: str, expected: str) -> None:
    found = site_hooks.with_links_of_site(f"See [it]({link}).\n\n```py\n[x](y)\n```\n", source, page, set())
    assert found == f"See [it]({expected}).\n\n```py\n[x](y)\n```\n"


def test_with_a_repository_links_to_sources_lead_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_hooks, "PROJECT_URL", "https://example.org/legato")
    found = site_hooks.with_links_of_site("[it](../../tests/conftest.py)", "docs/howto/a.md", "howto/a.md", set())
    assert found == "[it](https://example.org/legato/blob/main/tests/conftest.py)"
