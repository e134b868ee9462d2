"""Work in the background."""

import threading

import pytest

from legato.console.background import Background


def fail() -> None:
    raise ZeroDivisionError


def test_work_that_fails_is_told_of_and_takes_no_thread_away(caplog: pytest.LogCaptureFixture) -> None:
    """After as many failures as there are threads nothing was done any more."""
    background = Background("looks", threads_max=1, waiting_max=4)
    for _ in range(2):
        failed = background.begin(fail)
        assert failed is not None
        assert failed.wait(60)
    came = threading.Event()
    assert background.begin(came.set) is not None
    assert came.wait(60)
    assert "ZeroDivisionError" in caplog.text
