"""Each script in examples/ ends well; its own first lines say which lines of the contract it tells."""

from pathlib import Path

import pytest

from tests.support.forked_process import run_with_quick_starts

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
LONG = {"flights_pipeline.py", "killed_pipeline.py", "orders_pipeline.py"}
"""Spark takes long to start; `tests/spark` runs the pipelines themselves."""
WAIT_S = 280.0


@pytest.mark.parametrize(
    "example", [each for each in EXAMPLES if each.name not in LONG], ids=lambda example: example.stem
)
def test_an_example_keeps_its_promise(example: Path, tmp_path: Path) -> None:
    """In a process and a directory of its own, as somebody who tries it would run it."""
    done = run_with_quick_starts(example, directory=tmp_path, timeout_s=WAIT_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout
    assert "Exception ignored" not in done.stderr
    assert "Warning" not in done.stderr
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


def test_the_list_of_examples_has_them_all() -> None:
    listed = (EXAMPLES[0].parent / "README.md").read_text()
    assert [example.name for example in EXAMPLES if f"({example.name})" not in listed] == []
