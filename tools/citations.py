"""Resolver of citations in sources, tests and docs: contract lines, promises, decisions, standards, pages, files."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIRECTORIES = ("src", "tests", "docs", "simulator", "bench", "deploy", "interop", "examples", "tools")
SUFFIXES = {".py", ".md", ".toml", ".lark", ".c", ".txt"}
NOT_READ = {
    *("docs/standards", "tests/architecture/test_citations.py", "tools/citations.py", "CHANGELOG.md"),
    *("tests/architecture/test_site.py", "tools/site_hooks.py"),
}
"""Lists of sections, and the texts that show citations to nothing, or pages of the site."""

SPECIFICATION_TESTS = "tests/conformance/jms"
"""Their docstrings begin with the section that they show."""

_NUMBER = r"\d+(?:\.\d+)*"
_NUMBERS = rf"{_NUMBER}(?:(?:\s*-\s*|,\s+|\s+and\s+|\s+to\s+){_NUMBER})*(?![\d-])"
_AMQP = re.compile(rf"\bAMQP(?:'s)?\s+(?!1\.0\b|0[.-]|10\b)({_NUMBERS})")
_JAKARTA = re.compile(rf"\bJakarta\s+Messaging(?:'s)?\s+({_NUMBERS})")
_PROMISE = re.compile(r"\b[Pp]romises?\s+(\d+(?:(?:,\s+|\s+and\s+|\s*-\s*|\s+to\s+)\d+)*)")
_DECISION = re.compile(r"\b[Dd]ecisions?\s+(\d+(?:(?:,\s+|\s+and\s+)\d+)*)|\bdecisions/(\d{4}[-\w]*)")
_CONTRACT = re.compile(r"\bCONTRACT\s+([A-E]\d+\w?(?:\([a-z]\))?(?:(?:\s*-\s*|,\s+|\s+and\s+)[A-E]?\d+\w?)*)")
_AMQP_PAGE = re.compile(r"\bamqp\.md\s+([AC]\d+(?:\.\d+)?(?:(?:,\s+|\s+and\s+)[AC]\d+(?:\.\d+)?)*)")
_PAGE = re.compile(r"(?<![\w/.])((?:[\w.-]+/)*[\w-]+\.md)\b")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_FILE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|md|toml|lark|txt|json|png|css|js))`")
_SECTION_OF_TEST = re.compile(rf'(?:"""|^# -- )({_NUMBERS})(?=[.,:;" (])', re.MULTILINE)
"""What a test of the specification begins with: the section that it shows."""
_HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
_FENCE = re.compile(r"^([ \t]*)```.*?^\1```", re.MULTILINE | re.DOTALL)


class Library:
    """What can be cited in a source tree.

    Args:
        root: the tree's root.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root

    @cached_property
    def amqp(self) -> frozenset[str]:
        """The sections of AMQP 1.0."""
        return self._sections("amqp-1.0.txt")

    @cached_property
    def jakarta(self) -> frozenset[str]:
        """The sections of Jakarta Messaging 3.1."""
        return self._sections("jakarta-messaging-3.1.txt")

    @cached_property
    def contract(self) -> frozenset[str]:
        """The lines of the contract."""
        return frozenset(tomllib.loads((self.root / "docs" / "contract.toml").read_text()).keys() - {"titles"})

    @cached_property
    def promises(self) -> frozenset[str]:
        """The numbers of the promises, as their page has them."""
        page = (self.root / "docs" / "reference" / "promises.md").read_text()
        return frozenset(re.findall(r"^## (\d+)\.", page, re.MULTILINE))

    @cached_property
    def points_of_amqp(self) -> frozenset[str]:
        """The points of docs/internals/amqp.md."""
        page = (self.root / "docs" / "internals" / "amqp.md").read_text()
        return frozenset(re.findall(r"^(?:### |- )([AC]\d+(?:\.\d+)?)[:.]", page, re.MULTILINE))

    @cached_property
    def decisions(self) -> frozenset[str]:
        """The file names of the decisions, without suffix."""
        return frozenset(file.stem for file in (self.root / "docs" / "decisions").glob("[0-9]*.md"))

    @cached_property
    def files(self) -> frozenset[str]:
        """Every file that is part of the project, relative to the root."""
        return frozenset(project_files(self.root))

    @cached_property
    def endings(self) -> frozenset[str]:
        """Each file under all of its names: `lmdb.py`, `store/lmdb.py`, `legato/store/lmdb.py` ..."""
        return frozenset("/".join(parts[at:]) for parts in map(_parts, self.files) for at in range(len(parts)))

    def anchors(self, page: Path) -> frozenset[str]:
        """The anchors of a page's headings, as GitHub makes them."""
        text = _FENCE.sub("", page.read_text())
        return frozenset(_anchor(heading) for heading in _HEADING.findall(text))

    def _sections(self, name: str) -> frozenset[str]:
        lines = (self.root / "docs" / "standards" / name).read_text().splitlines()
        return frozenset(line.split()[0] for line in lines if not line.startswith("#"))


def project_files(root: Path = ROOT) -> list[str]:
    """The files of a source tree, also new ones, but none that git ignores, such as those of `node_modules`.

    In sources that are not git's, from an archive, all files.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return sorted(file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())
    # A file that was deleted is in the index until that is committed; one with a conflict is there three times.
    return sorted({name for name in listed.split("\0") if name and (root / name).is_file()})


def sources(root: Path = ROOT) -> Iterator[Path]:
    """All files in which citations are looked for."""
    for name in project_files(root):
        first, _, below = name.partition("/")
        is_read = first in DIRECTORIES if below else first.endswith(".md")
        if is_read and Path(name).suffix in SUFFIXES and not any(name.startswith(prefix) for prefix in NOT_READ):
            yield root / name


def unresolved(text: str, library: Library, page: Path | None = None) -> list[str]:
    """The citations in a text that lead nowhere.

    Args:
        page: the Markdown page that the text is from, so that its links can be followed.
    """
    # A citation may go on in the next line of a comment.
    flat = re.sub(r"\n[ \t]*(?:#:?|//|>)?[ \t]*", " ", text)
    wrong = [f"AMQP {number}" for number in _cited(_AMQP, flat) if number not in library.amqp]
    wrong += [f"Jakarta Messaging {number}" for number in _cited(_JAKARTA, flat) if number not in library.jakarta]
    wrong += [f"promise {number}" for number in _cited(_PROMISE, flat) if number not in library.promises]
    wrong += [f"CONTRACT {name}" for name in _lines(flat) if name not in library.contract]
    wrong += [f"amqp.md {point}" for point in _points(flat) if point not in library.points_of_amqp]
    wrong += [f"decision {name}" for name in _decisions(flat) if not _is_decision(name, library.decisions)]
    wrong += [name for name in _PAGE.findall(flat) if not _is_page(name, library, page)]
    if page is not None:
        wrong += [name for name in _FILE.findall(text) if name not in library.endings]
        wrong += _dead_links(text, library, page)
    return list(dict.fromkeys(wrong))


def unresolved_sections(text: str, library: Library) -> list[str]:
    """The sections of Jakarta Messaging that there are not, of those that the tests of its chapters begin with."""
    return [number for number in _cited(_SECTION_OF_TEST, text) if number not in library.jakarta]


def complaints(root: Path = ROOT) -> list[str]:
    """Every citation of the tree that leads nowhere, after the file that has it."""
    library = Library(root)
    wrong = [
        f"{file.relative_to(root)}: {citation}"
        for file in sources(root)
        for citation in unresolved(file.read_text(), library, file if file.suffix == ".md" else None)
    ]
    wrong += [
        f"{file.relative_to(root)}: Jakarta Messaging {number}"
        for file in sorted((root / SPECIFICATION_TESTS).glob("test_ch*.py"))
        for number in unresolved_sections(file.read_text(), library)
    ]
    return wrong


def _cited(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    for found in pattern.findall(text):
        yield from _spread(found)


def _spread(numbers: str) -> Iterator[str]:
    """The numbers of a list: `3.5.10-13` are four, and so are `3.5.10-3.5.13`."""
    for item in re.split(r",\s+|\s+and\s+", numbers):
        first, *rest = re.split(r"\s*-\s*|\s+to\s+", item)
        yield first
        if rest:
            *above, low = first.split(".")
            for number in range(int(low) + 1, int(rest[0].split(".")[-1]) + 1):
                yield ".".join([*above, str(number)])


def _lines(text: str) -> Iterator[str]:
    for found in _CONTRACT.findall(text):
        for part, first, last in re.findall(r"([A-E])(\d+)(?:\s*-\s*[A-E]?(\d+))?", found):
            yield from (f"{part}{number}" for number in range(int(first), int(last or first) + 1))


def _points(text: str) -> Iterator[str]:
    for found in _AMQP_PAGE.findall(text):
        yield from re.split(r",\s+|\s+and\s+", found)


def _decisions(text: str) -> Iterator[str]:
    for numbers, name in _DECISION.findall(text):
        if name:
            yield name
        else:
            yield from (f"{int(number):04}" for number in re.split(r",\s+|\s+and\s+", numbers))


def _is_decision(name: str, decisions: Iterable[str]) -> bool:
    return any(stem == name or (len(name) == 4 and stem.startswith(f"{name}-")) for stem in decisions)


def _is_page(name: str, library: Library, page: Path | None) -> bool:
    """A page is named from the root, from the page that names it, or by the end of its path."""
    if page is not None and (page.parent / name).exists():
        return True
    return name.replace("../", "") in library.endings


def _dead_links(text: str, library: Library, page: Path) -> Iterator[str]:
    for one, other in _LINK.findall(_FENCE.sub("", text)):
        target, _, anchor = (one or other).partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists():
            yield f"link to {target}"
        elif anchor and file.suffix == ".md" and anchor not in library.anchors(file):
            yield f"link to {target}#{anchor}"


def _anchor(heading: str) -> str:
    plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def _parts(name: str) -> tuple[str, ...]:
    return Path(name).parts


def main() -> int:
    """Say which citations lead nowhere; exit code 1 if there are any."""
    found = complaints()
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
