"""What the log says of a connection that was lost: little, and enough to know what is waited for."""

import logging

import pytest

from legato.client.failover.disconnect_reason import Detection, Loss
from legato.client.failover.outage_log import LOSSES_TOLD, TOLD_EVERY_S, WAIT_TOLD_AFTER_S, OutageLog
from legato.client.failover.schedule import FailoverEvent
from legato.client.failover.uri import Host, parse_uri
from legato.errors import JMSError

HOST = Host("tea", 5672)
LOSS = Loss(HOST, Detection.LOST, JMSError("gone"), reason="it ended")


def back_at(host: Host = HOST) -> FailoverEvent:
    return FailoverEvent(str(HOST), str(host), 1, 2, 3210.0, Detection.LOST, 1, False, 0, (), 0, 0)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "legato")
    return caplog


def test_a_loss_and_its_end_are_warnings(lines: pytest.LogCaptureFixture) -> None:
    """The end was an information: who sees warnings only never learned that the connection is back."""
    log = OutageLog(parse_uri("amqp://ann:secret@tea"))
    log.lost(LOSS, (HOST,), 10.0)
    log.back(back_at())
    assert [(record.levelname, record.getMessage()) for record in lines.records] == [
        (
            "WARNING",
            "Lost the connection to amqp://tea:5672: it ended. Trying tea:5672 again until one answers "
            "(reconnect_attempts=-1); calls wait meanwhile.",
        ),
        ("WARNING", "Connected to tea:5672 again after 3.21 s."),
    ]


def test_a_bound_on_the_attempts_is_said(lines: pytest.LogCaptureFixture) -> None:
    log = OutageLog(parse_uri("amqps://tea,milk?reconnect_attempts=7&failover_contract=hornetq"))
    log.lost(LOSS, (HOST, Host("milk", 5671)), 10.0)
    assert lines.messages == [
        "Lost the connection to amqps://tea:5672: it ended. Trying tea:5672, milk:5671 again for up to 7 rounds "
        "(reconnect_attempts=7)."
    ]
    log.back(back_at(Host("milk", 5671)))
    assert lines.messages[-1] == "Failed over from tea:5672 to milk:5671 after 3.21 s."


def test_tries_have_no_lines_but_the_wait_has_one_now_and_then(lines: pytest.LogCaptureFixture) -> None:
    log = OutageLog(parse_uri("amqp://tea"))
    log.lost(LOSS, (HOST,), 100.0)
    for tenths in range(round(TOLD_EVERY_S * 10 * 2.5)):
        log.waiting("tea:5672: Connection refused", 100.0 + tenths / 10)
    waits = [
        f"Waiting for a broker for {TOLD_EVERY_S * n:.0f} s so far (tea:5672: Connection refused)." for n in (1, 2)
    ]
    assert lines.messages[1:] == waits


def test_a_first_connection_that_takes_long_is_told_of_early(lines: pytest.LogCaptureFixture) -> None:
    log = OutageLog(parse_uri("amqp://tea"))
    for tenths in range(round(TOLD_EVERY_S * 10)):
        log.waiting("refused", 5.0 + tenths / 10)
    assert lines.messages == [
        f"Waiting for a broker for {WAIT_TOLD_AFTER_S:.0f} s so far (refused). It is tried for 60 s (connect_wait_s). "
        "`legato serve` starts a broker."
    ]
    log.first_connected(HOST, 35.0)
    assert [record.levelname for record in lines.records] == ["WARNING", "WARNING"]
    assert lines.messages[-1] == "Connected to tea:5672 after 30 s."
    log.lost(LOSS, (HOST,), 50.0)
    assert lines.messages[-1].startswith("Lost the connection")


def test_a_first_connection_that_is_quick_is_not_told_of(lines: pytest.LogCaptureFixture) -> None:
    log = OutageLog(parse_uri("amqp://tea"))
    log.waiting("refused", 5.0)
    log.first_connected(HOST, 5.0 + WAIT_TOLD_AFTER_S / 2)
    assert lines.messages == []


def test_a_broker_that_lets_in_and_drops_at_once_fills_no_log(lines: pytest.LogCaptureFixture) -> None:
    log = OutageLog(parse_uri("amqp://tea"))
    for hundredths in range(1000):
        log.lost(LOSS, (HOST,), hundredths / 100)
        log.back(back_at())
    assert len(lines.records) == 2 * LOSSES_TOLD
    log.lost(LOSS, (HOST,), 1000.0)
    assert lines.messages[-1].endswith(f"It was lost {1000 - LOSSES_TOLD} times more since the last such line.")


def test_the_end_of_an_outage_is_told_of_if_the_wait_was(lines: pytest.LogCaptureFixture) -> None:
    """Of its loss there was no line, as there had been many."""
    log = OutageLog(parse_uri("amqp://tea"))
    for hundredths in range(LOSSES_TOLD):
        log.lost(LOSS, (HOST,), hundredths / 100)
        log.back(back_at())
    log.lost(LOSS, (HOST,), 1.0)
    log.waiting("refused", 1.0 + TOLD_EVERY_S)
    log.back(back_at())
    assert lines.messages[-2].startswith("Waiting for a broker for ")
    assert lines.messages[-1] == "Connected to tea:5672 again after 3.21 s."


def test_what_is_lost_before_all_is_restored_is_one_outage(lines: pytest.LogCaptureFixture) -> None:
    log = OutageLog(parse_uri("amqp://tea"))
    for second in range(20):
        log.lost(LOSS, (HOST,), float(second))
    assert len(lines.records) == 1
    log.waiting("refused", TOLD_EVERY_S)
    assert len(lines.records) == 2
