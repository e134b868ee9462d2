"""What `make wheels PROJECT_URL=...` builds from: an index shows the README, far from the files that it names."""

import re
import tomllib
from pathlib import Path

from tools.make_wheels import copy_of_sources

ROOT = Path(__file__).parents[2]
URL = "https://example.org/legato"


def test_with_a_url_each_link_of_the_readme_is_absolute_and_leads_to_a_file(tmp_path: Path) -> None:
    """USERS B2: 24 links and the pictures were dead on the page of an index."""
    sources = copy_of_sources(tmp_path, URL)
    links = re.findall(r"\]\(([^)\s]+)\)", (sources / "README.md").read_text())
    assert len(links) > 40
    for link in links:
        assert link.startswith("https://"), link
        kind, _, place = link.removeprefix(f"{URL}/").partition("/main/")
        assert (ROOT / place.partition("#")[0]).is_file(), link
        assert kind == ("raw" if place.endswith((".svg", ".png")) else "blob"), link
    urls = tomllib.loads((sources / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Repository"] == URL
    for url in (urls["Documentation"], urls["Changelog"]):
        assert (ROOT / url.removeprefix(f"{URL}/blob/main/")).is_file()


def test_without_a_url_the_readme_is_as_it_is(tmp_path: Path) -> None:
    assert (copy_of_sources(tmp_path, "") / "README.md").read_text() == (ROOT / "README.md").read_text()
