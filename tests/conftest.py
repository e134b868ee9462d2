"""What holds for all tests: none of Hypothesis' examples is judged by how long it took on a busy machine, and Spark is
started once."""

from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

settings.register_profile("legato", deadline=None)
settings.load_profile("legato")

_SPARK = "tests/spark/"


class OneSpark(LoadFileScheduling):  # type: ignore[misc]
    """A file's tests stay together, and all that need Spark are one worker's."""

    def _split_scope(self, nodeid: str) -> str:
        return _SPARK if nodeid.startswith(_SPARK) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSpark:
    """How tests are shared out to several workers."""
    return OneSpark(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs Spark takes longest, so it comes first."""
    items.sort(key=lambda item: not item.nodeid.startswith(_SPARK))
