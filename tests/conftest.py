"""What holds for all tests: none of Hypothesis' examples is judged by how long it took on a busy machine, and Spark is
started once."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("legato", deadline=None)
settings.load_profile("legato")

_SPARK = Path(__file__).parent / "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers: a file's tests stay together, and all that need Spark are one worker's, which begins with
    them, as they take longest."""
    for item in items:
        needs_spark = _SPARK in item.path.parents
        item.add_marker(pytest.mark.xdist_group("spark" if needs_spark else str(item.path)))
    items.sort(key=lambda item: _SPARK not in item.path.parents)
