"""Errors as Spark passes them on: what Legato said in them, and what Spark said if it was not Legato."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.errors.exceptions import captured
from pyspark.errors.exceptions.captured import CapturedException, PythonException, UnknownException

_OURS = re.compile(r"^(?:.*?[\s:])?legato\.errors\.\w+: (.+)$", re.MULTILINE)
_CAUSE = re.compile(r'^(?:Caused by: |: |Exception in thread "main" )(\S+: .+)$', re.MULTILINE)
"""A line of a Java stack trace that has an error's class and message."""
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception): .*[^:\s])$", re.MULTILINE)
"""The last line of a Python stack trace."""


def sentence_of(text: str) -> str | None:
    """What Legato said, of all that Spark shows of an error; None if Legato said nothing."""
    found = _OURS.search(text)
    return None if found is None else found[1].strip()


def cause_of(text: str) -> str:
    """The cause that lies deepest, of what Spark shows of an error of its own."""
    causes: list[str] = _CAUSE.findall(text)
    trace = text.partition(_TRACEBACK)[2]
    if trace and (not causes or causes[-1].endswith(_TRACEBACK)) and (raised := _RAISED.findall(trace)):
        # What a function in Python raised: Java passes its trace on, and says nothing itself.
        return str(raised[-1])
    if causes:
        return causes[-1].strip()
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith("WARNING:")), "it did not say why")


def note_sentences() -> None:
    """Have errors from Spark begin and end with what Legato said: a stream's error has a page of offsets and plans.

    A note (`BaseException.add_note`) is what Python prints last. PySpark makes its errors in the function that is
    wrapped here, and has no place for a program to add to them; their type and condition stay as they are.
    """
    convert = captured.convert_exception
    if getattr(convert, "notes_sentences", False):
        return

    @wraps(convert)
    def convert_and_note(java_error: Any) -> CapturedException:
        error = convert(java_error)
        # What PySpark does not know it raises as Py4J did, and that is being handled here.
        raised = sys.exception() if isinstance(error, UnknownException) else error
        if raised is not None and not hasattr(raised, "__notes__") and (said := sentence_of(str(raised))):
            raised.add_note(f"Legato: {said}")
            if raised is error:
                error._desc = f"Legato: {said}\n{error._desc}"
        return error

    convert_and_note.notes_sentences = True  # type: ignore[attr-defined]
    captured.convert_exception = convert_and_note  # type: ignore[assignment]
    PythonException.__str__ = _said_first(PythonException.__str__)  # type: ignore[method-assign]


def _said_first(shown: Callable[[PythonException], str]) -> Callable[[PythonException], str]:
    """Of an error from a task: `shown` is the worker's traceback, whatever its description says."""

    @wraps(shown)
    def said_and_shown(error: PythonException) -> str:
        text = shown(error)
        said = next((note for note in getattr(error, "__notes__", ()) if note.startswith("Legato: ")), "")
        return text if text.startswith(said) else f"{said}\n{text}"

    return said_and_shown
