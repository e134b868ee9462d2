"""Reports of a child process to its parent, one JSON object a line, and the parent's order to stop."""

import os
import sys
import threading

import msgspec

_encoder = msgspec.json.Encoder()


class Report(msgspec.Struct, tag=True, tag_field="report"):
    """Base of all reports; counts are totals since the process started."""


class Finished(Report):
    """The process did all it was asked for; nothing follows."""


class Failed(Report):
    """The process gives up; `reason` is a sentence."""

    reason: str


def encode_report(report: Report) -> bytes:
    """The report as one line."""
    return _encoder.encode(report) + b"\n"


def report(what: Report) -> None:
    """Tell the parent; a line at a time, whichever thread reports."""
    os.write(sys.stdout.fileno(), encode_report(what))


def stop_requested() -> threading.Event:
    """An event that is set when the parent closes our standard input, or dies."""
    event = threading.Event()

    def wait_for_end() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        event.set()

    threading.Thread(target=wait_for_end, name="stop", daemon=True).start()
    return event
