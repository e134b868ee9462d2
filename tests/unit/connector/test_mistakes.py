"""An error of Legato's in a worker of Spark's is passed on as a line; a bug keeps its stack trace."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors.exceptions import captured
from pyspark.util import handle_worker_exception

from legato.errors import JMSError, LegatoError
from legato.spark.connector.mistakes import told_at_once
from legato.spark.connector.requests import Missing
from legato.spark.runtime.spark_errors import cause_of, note_sentences, sentence_of

GONE = "The queue orders was deleted."


@told_at_once
def ask(error: Exception) -> int:
    raise error


@told_at_once
def read(error: Exception) -> Iterator[int]:
    yield 1
    raise error


def passed_on(error: Exception, method: Callable[[Exception], object]) -> str:
    """What PySpark's worker tells Spark when the method raises."""
    told = BytesIO()
    try:
        result = method(error)
        if isinstance(result, Iterator):
            list(result)
    except Exception as raised:
        handle_worker_exception(raised, told)
    return told.getvalue()[8:].decode()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="pyspark.daemon"))
    yield
    os.environ.pop("SPARK_HIDE_TRACEBACK", None)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("method", [ask, read])
@pytest.mark.parametrize("error", [JMSError(GONE), Missing(GONE)])
def test_an_error_is_one_line_with_the_name_of_a_public_class(
    error: LegatoError, method: Callable[[Exception], object]
) -> None:
    """Thirty lines of calls stood above it."""
    assert passed_on(error, method) == f"legato.errors.JMSError: {GONE}\n"


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("method", [ask, read])
def test_a_bug_keeps_its_trace(method: Callable[[Exception], object]) -> None:
    assert passed_on(ValueError("no"), method).startswith("Traceback")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def test_in_a_program_of_a_user_errors_stay_what_they_are() -> None:
    with pytest.raises(Missing) as told:
        ask(Missing(GONE))
    assert told.value.__suppress_context__
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


STREAM_FAILED = f"""\
[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] \
Failed when Python streaming data source perform latestOffset: legato.errors.JMSError: {GONE}
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 1-2, runId = 3-4]
"""
TASK_FAILED = """\
An error occurred while calling o55.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2898)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
FUNCTION_FAILED = """\
[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error \
occurred in the user provided function in foreach batch sink. Reason: An exception was raised by the Python Proxy. \
Return Message: Traceback (most recent call last):
  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status
    raise convert_status(status)
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status
FileNotFoundError: [Errno 2] Failed to open local file 'tables/part-0.parquet'
 SQLSTATE: 39000
=== Streaming Query ===
"""


def test_what_legato_said_is_found_in_what_spark_says() -> None:
    assert sentence_of(STREAM_FAILED) == GONE
    assert sentence_of(f"An exception was thrown:\nlegato.errors.ConfigError: {GONE}\n SQLSTATE: 38000") == GONE
    assert sentence_of(TASK_FAILED) is None


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (TASK_FAILED, "java.io.IOException: No space left on device"),
        (
            TASK_FAILED.partition("Caused")[0],
            "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0",
        ),
        ("[PARSE_SYNTAX_ERROR] Syntax error at 'x'.\n== SQL ==\nx", "[PARSE_SYNTAX_ERROR] Syntax error at 'x'."),
        ("WARNING: Using incubator modules\nInvalid maximum heap size: -Xmx2x", "Invalid maximum heap size: -Xmx2x"),
        (FUNCTION_FAILED, "FileNotFoundError: [Errno 2] Failed to open local file 'tables/part-0.parquet'"),
        ("", "it did not say why"),
    ],
)
def test_what_spark_said_itself_is_its_deepest_cause(text: str, cause: str) -> None:
    assert cause_of(text).startswith(cause)


class Captured(Exception):
    """As PySpark makes its errors."""

    def __init__(self, described: str) -> None:
        super().__init__(described)
        self._desc = described

    def __str__(self) -> str:
        return self._desc


@pytest.mark.parametrize("times", [1, 2])
def test_an_error_from_spark_begins_and_ends_with_the_sentence(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "convert_exception", Captured)
    for _ in range(times):
        note_sentences()
    spark = f"[STREAM_FAILED] Query [id = 1] terminated: legato.errors.JMSError: {GONE}\nthe plan"
    error = captured.convert_exception(spark)
    assert str(error) == f"Legato: {GONE}\n{spark}"
    assert error.__notes__ == [f"Legato: {GONE}"]
    other = captured.convert_exception("[OTHER] Spark's own")
    assert (str(other), hasattr(other, "__notes__")) == ("[OTHER] Spark's own", False)


def test_an_error_from_a_task_begins_with_the_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark shows of it what the worker printed, not its description."""
    traceback = f"An exception was thrown from the Python worker:\nlegato.errors.JMSError: {GONE}"
    monkeypatch.setattr(captured.PythonException, "__str__", lambda _: traceback)
    monkeypatch.setattr(captured, "convert_exception", lambda error: error)
    note_sentences()
    of_java: Any = captured.PythonException.__new__(captured.PythonException)
    of_java._desc = traceback
    error = captured.convert_exception(of_java)
    assert str(error) == f"Legato: {GONE}\n{traceback}"
