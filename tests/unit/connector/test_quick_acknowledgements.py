"""A worker of Spark acknowledges at once what comes after the end of a task."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from legato.spark.connector.quick_acknowledgements import acknowledge_at_once

WORKER = """
import gc, os, socket
from legato.spark.connector import quick_acknowledgements
from legato.spark.connector.quick_acknowledgements import acknowledge_at_once

if {is_worker}:
    quick_acknowledgements.is_spark_worker = lambda: True
spark = socket.socket(fileno=os.dup({number}))
other = socket.create_connection(spark.getpeername())
assert acknowledge_at_once() is {is_worker}
assert acknowledge_at_once() is {is_worker}


def is_quick():
    return bool(spark.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


for task in range(3):
    assert spark.recv(100) == b"task"
    spark.sendall(b"rows")
    # As the kernel does for who answers in time: the next answer is to carry the acknowledgement.
    spark.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    gc.collect(0)
    print(is_quick(), end=" ")
    gc.collect()
    print(is_quick(), flush=True)
"""


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="this system has no such option")
@pytest.mark.parametrize("is_worker", [True, False])
def test_acknowledgements_are_not_held_back_after_a_task(is_worker: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        inherited = socket.create_connection(listening.getsockname())
        spark, _ = listening.accept()
        with inherited, spark:
            number = inherited.fileno()
            program = WORKER.format(is_worker=is_worker, number=number)
            worker = subprocess.Popen(
                [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, pass_fds=[number]
            )
            with worker:
                assert worker.stdout is not None
                told = []
                for _ in range(3):
                    spark.sendall(b"task")
                    told.append(worker.stdout.readline().split())
                    assert spark.recv(100) == b"rows"
    assert worker.returncode == 0
    assert told == [["False", str(is_worker)]] * 3


def test_a_program_of_the_users_is_left_as_it_is() -> None:
    assert not acknowledge_at_once()
