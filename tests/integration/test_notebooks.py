"""The notebooks of `examples/notebooks` run from top to bottom, and draw what they show."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def read(path: Path) -> Any:
    """A notebook."""
    return nbformat.reads(path.read_text(), 4)  # type: ignore[no-untyped-call]


def pictures(notebook: Any) -> list[str]:
    """Of which cells there are pictures."""
    return [
        cell["source"].splitlines()[0]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_runs_from_top_to_bottom(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes a ledger of its own: two brokers, a kill."""
    monkeypatch.delenv("LEGATO_LEDGER", raising=False)
    kept = read(path)
    run = NotebookClient(read(path), timeout=110, kernel_name="python3").execute()
    assert pictures(run) == pictures(kept) != []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_with_its_pictures_and_without_errors(path: Path) -> None:
    kept = read(path)
    assert pictures(kept)
    kinds = {output["output_type"] for cell in kept.cells for output in cell.get("outputs", [])}
    assert kinds <= {"display_data", "execute_result", "stream"}
