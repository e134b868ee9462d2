"""Ctrl-C while Spark starts leaves no JVM behind. No Spark, no JVM."""

import os
import signal
from threading import Thread

import pytest

from legato.spark.runtime.session import interrupts_deferred


def test_an_interrupt_waits_until_spark_has_started() -> None:
    before = signal.getsignal(signal.SIGINT)
    steps = []

    def start() -> None:
        with interrupts_deferred():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert steps == ["started"]
    assert signal.getsignal(signal.SIGINT) is before


def test_the_handler_that_spark_installs_stays() -> None:
    def of_spark(*_: object) -> None:
        """What a `SparkContext` would do."""

    before = signal.getsignal(signal.SIGINT)
    try:
        with interrupts_deferred():
            signal.signal(signal.SIGINT, of_spark)
        assert signal.getsignal(signal.SIGINT) is of_spark
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_that_no_signal_reaches_starts_spark_as_well() -> None:
    entered = []

    def start() -> None:
        with interrupts_deferred():
            entered.append(True)

    thread = Thread(target=start)
    thread.start()
    thread.join()
    assert entered == [True]
