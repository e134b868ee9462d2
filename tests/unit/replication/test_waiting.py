"""Why a replica waits."""

import logging

import pytest

from legato.replication.waiting import Waiting


def test_a_reason_is_logged_once_whatever_numbers_are_in_it(caplog: pytest.LogCaptureFixture) -> None:
    """The log is trimmed meanwhile: each look has another number, and was another line, for ever."""
    caplog.set_level(logging.INFO, "legato.replication")
    waiting = Waiting(lambda: 0)
    for record in (4_711, 4_800, 5_200):
        waiting.begin("follow", f"the log keeps records from {record} on")
        waiting.begin("follow", f"the log keeps records from {record} on; a copy is looked for")
    assert [each.getMessage() for each in caplog.records] == [
        "! the replica waits: the log keeps records from 4711 on",
        "! the replica waits: the log keeps records from 4711 on; a copy is looked for",
    ]
    assert waiting.why == ["the log keeps records from 5200 on; a copy is looked for"]
    waiting.end("follow")
    waiting.begin("follow", "the log keeps records from 6000 on")
    assert caplog.records[-1].getMessage() == "! the replica waits: the log keeps records from 6000 on"
