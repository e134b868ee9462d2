"""Hooks of MkDocs for `make site`: README and other pages from outside of docs/, API pages, links to sources.

Pages are written for readers of the repository: their links lead to files. On the site a link to a page that is
there leads to it, a link to a source to the repository at `PROJECT_URL`, or without that variable to a copy of the
file beside the site.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[1]
PROJECT_URL = os.environ.get("PROJECT_URL", "").rstrip("/")
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "bench/README.md": "project/benchmarks.md",
    "bench/results/README.md": "project/results.md",
    "examples/README.md": "project/examples.md",
}
"""Pages of the repository outside of docs/, and where they are on the site."""
API = {
    "legato.client": "The client: `ConnectionFactory` and what it makes, blocking.",
    "legato.client.aio": "The same for asyncio.",
    "legato.errors": "Every error that Legato raises.",
    "legato.flows": "Services written as stages.",
    "legato.testing": "Brokers in tests, and flows without one.",
    "legato.faststream": "The FastStream broker.",
    "legato.kombu": "The transport for kombu and Celery.",
    "legato.spark": 'Audit, ledger tables and `format("legato")` from Python.',
}
"""Modules whose names are rendered from their docstrings."""
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\()(?!https?:|#|mailto:)([^)\s#]*)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not files of docs/."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for module, sentence in API.items():
        files.append(File.generated(config, f"api/{module}.md", content=api_page(module, sentence)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links lead where their files are on the site."""
    source = {page: source for source, page in PAGES.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    page.edit_url = f"{PROJECT_URL}/edit/main/{source}" if PROJECT_URL else None
    linked: set[str] = set()
    text = with_links_of_site(markdown, source, page.file.src_uri, linked)
    for path in sorted(linked):
        _add_copy(path, config, files)
    if source == "docs/reference/contract.md":
        page.meta["hide"] = ["toc"]
    return text


def api_page(module: str, sentence: str) -> str:
    """A page that mkdocstrings fills."""
    return f"# `{module}`\n\n{sentence}\n\n::: {module}\n"


def with_links_of_site(text: str, source: str, page: str, linked: set[str]) -> str:
    """The text of a page with the links of the site.

    Args:
        text: the page as it is in the repository.
        source: its path there.
        page: its path among the sources of the site.
        linked: gets the paths of files that are neither pages nor in docs/.
    """
    folder = posixpath.dirname(page)

    def moved(found: re.Match[str]) -> str:
        before, link, anchor, after = found[1], found[2], found[3] or "", found[4]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        if target in PAGES:
            to = posixpath.relpath(PAGES[target], folder or ".")
        elif target.startswith("docs/") and PurePosixPath(target).suffix:
            to = posixpath.relpath(target.removeprefix("docs/"), folder or ".")
        elif PROJECT_URL:
            to = f"{PROJECT_URL}/{'tree' if (ROOT / target).is_dir() else 'blob'}/main/{target}"
        else:
            linked.add(target)
            # Relative to the page as it is served, in a directory of its own.
            to, anchor = posixpath.relpath(copy_of(target), folder or "."), ""
        return f"{before}{to}{anchor}{after}"

    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(moved, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(moved, text[end:])])


def copy_of(path: str) -> str:
    """Where the site has a file of the repository: as text, which browsers show; of a directory, its list of files."""
    return f"sources/{path.rstrip('/')}.txt"


def _add_copy(path: str, config: Any, files: Any) -> None:
    from mkdocs.structure.files import File

    name = copy_of(path)
    if files.get_file_from_path(name) is None:
        file = ROOT / path
        if file.is_dir():
            content = "".join(f"{path}/{found.relative_to(file)}\n" for found in sorted(file.rglob("*.*")))
        else:
            content = file.read_text()
        files.append(File.generated(config, name, content=content))
