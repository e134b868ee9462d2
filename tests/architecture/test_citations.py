"""Every citation in sources, tests and docs leads somewhere."""

import subprocess
from pathlib import Path

import pytest
from tools.citations import ROOT, Library, complaints, project_files, sources, unresolved, unresolved_sections

LIBRARY = Library()
PAGE = ROOT / "docs" / "reference" / "wire.md"


def test_every_citation_leads_somewhere() -> None:
    assert complaints() == []


@pytest.mark.parametrize(
    "text",
    [
        "Refused (AMQP 2.6.7; AMQP 3.5.3, 3.5.10-13) over AMQP 1.0.",
        "As Jakarta Messaging 6.2.7 and 8.3.1 say; Jakarta Messaging 3.1, 3.8.1.1; Jakarta Messaging's 3.5.",
        "CONTRACT A18, E14-E16 and B1; CONTRACT C11(f).",
        "The points amqp.md A9, C2.4.",
        "Stored once (promise 1), and promises 1 and 5, promises 1 to 7.",
        "Why: decision 0047, decision 30, decisions 48 and 49, docs/decisions/0047-preallocation.md.",
        "See docs/howto/failover.md and ARCHITECTURE.md.",
    ],
)
def test_what_exists_can_be_cited(text: str) -> None:
    assert unresolved(text, LIBRARY) == []


@pytest.mark.parametrize(
    ("text", "citation"),
    [
        ("Refused (AMQP 2.6.99).", "AMQP 2.6.99"),
        ("Refused (AMQP 2.6.7, 2.9).", "AMQP 2.9"),
        ("Lifetime policies (AMQP\n    # 3.5.10-14).", "AMQP 3.5.14"),
        ("Jakarta Messaging 10.4.3 says so.", "Jakarta Messaging 10.4.3"),
        ("CONTRACT A18, A99.", "CONTRACT A99"),
        ("CONTRACT B1 and E14-E99.", "CONTRACT E99"),
        ("amqp.md A9, A99.", "amqp.md A99"),
        ("It is stored once (promise 8).", "promise 8"),
        ("Promises 1 and 9.", "promise 9"),
        ("As in decision 35.", "decision 0035"),
        ("See docs/decisions/0047-rooms.md.", "decision 0047-rooms"),
        ("See SPARK.md 0.1.", "SPARK.md"),
        ("See docs/howto/failing-over.md.", "docs/howto/failing-over.md"),
    ],
)
def test_what_does_not_exist_cannot(text: str, citation: str) -> None:
    assert citation in unresolved(text, LIBRARY)


@pytest.mark.parametrize(
    ("text", "citation"),
    [
        ("See [errors](mistakes.md).", "link to mistakes.md"),
        ("See [errors](errors.md#nowhere).", "link to errors.md#nowhere"),
        ("See [above](#no-such-heading).", "link to #no-such-heading"),
        ("It is in `core/no_such_module.py`.", "core/no_such_module.py"),
    ],
)
def test_links_and_files_of_a_page_exist(text: str, citation: str) -> None:
    assert citation in unresolved(text, LIBRARY, PAGE)


def test_a_test_of_the_specification_begins_with_a_section_that_there_is() -> None:
    assert unresolved_sections('    """6.2.10, CONTRACT C7."""\n# -- 8.5, 8.6: receiving ---', LIBRARY) == []
    assert unresolved_sections('    """10.4.3."""', LIBRARY) == ["10.4.3"]


def test_a_planted_citation_is_found_with_its_file(tmp_path: Path) -> None:
    for name in ("docs/contract.toml", "docs/reference/promises.md", "docs/internals/amqp.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "docs" / "standards").symlink_to(ROOT / "docs" / "standards")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "module.py").write_text('"""Refused (AMQP 2.6.99)."""\n')
    assert "src/module.py: AMQP 2.6.99" in complaints(tmp_path)


def test_what_git_ignores_is_not_read_and_what_is_new_is(tmp_path: Path) -> None:
    """`interop/javascript/node_modules`, there after `interop/run-clients`, was read and failed."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    files = {
        ".gitignore": "node_modules/\n",
        "README.md": "",
        "docs/new.md": "",
        "interop/node_modules/rhea/README.md": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [file.relative_to(tmp_path).as_posix() for file in sources(tmp_path)] == ["README.md", "docs/new.md"]
    assert project_files(tmp_path) == [".gitignore", "README.md", "docs/new.md"]
