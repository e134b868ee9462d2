"""Mistakes of users become a sentence and an exit code; bugs of ours stay visible."""

import logging

import pytest

from legato.cli.failures import EXIT_FAILED, EXIT_USAGE, explain, hide_interrupted_calls
from legato.errors import ConfigError, JMSSecurityError, LegatoError, tree


@pytest.mark.parametrize("kind", [kind for kind in tree() if kind.__init__ is Exception.__init__])
def test_every_error_has_something_to_say(kind: type[LegatoError]) -> None:
    explanation = explain(kind())
    assert explanation is not None
    assert len(explanation[0]) > 10


def test_a_setting_is_a_mistake_of_use_and_a_refusal_is_not() -> None:
    assert explain(ConfigError("listen what?")) == ("listen what?", EXIT_USAGE)
    assert explain(JMSSecurityError("wrong password")) == ("wrong password", EXIT_FAILED)


def test_a_missing_package_names_the_extra_that_brings_it() -> None:
    explanation = explain(ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql"))
    assert explanation is not None
    assert "pip install 'legato[spark]'" in explanation[0]
    explanation = explain(ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow"))
    assert explanation is not None
    assert "pip install 'legato[ledger]'" in explanation[0], "not half a gigabyte of Spark, to write Arrow"


def test_a_file_that_is_not_there_is_named() -> None:
    assert explain(FileNotFoundError(2, "No such file or directory", "tea.txt")) == (
        "tea.txt: No such file or directory.",
        EXIT_FAILED,
    )


@pytest.mark.parametrize("bug", [ValueError("x"), ModuleNotFoundError("No module named 'legatto'", name="legatto")])
def test_a_bug_is_not_explained_away(bug: Exception) -> None:
    assert explain(bug) is None


def test_what_py4j_logs_of_interrupted_calls_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    before = list(root.filters)
    try:
        hide_interrupted_calls()
        exec(compile("import logging; logging.error('lost')", "site-packages/py4j/java_gateway.py", "exec"))
        logging.error("found")
        assert caplog.messages == ["found"]
    finally:
        root.filters[:] = before
