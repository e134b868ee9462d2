"""Acknowledgements of TCP in Spark's workers: what a task begins with is acknowledged at once.

Spark writes a task's function and then its partition, each in a packet of its own, and does not switch off Nagle's
algorithm: the second waits for the acknowledgement of the first. Linux holds that back for 40 ms, as it does wherever
who receives has just sent something too; a worker has, the end of its last task.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
from contextlib import suppress
from functools import cache

from legato.spark.connector.mistakes import is_spark_worker

_OLDEST = 2
"""The generation that PySpark collects when a task has ended, and all of it is written."""


@cache
def acknowledge_at_once() -> bool:
    """Have this process, if Spark started it, acknowledge the next tasks' beginnings as soon as it has read them.

    Returns:
        Whether it will.
    """
    # Other systems do not have it.
    option: int | None = getattr(socket, "TCP_QUICKACK", None)
    spark = _first_connection() if option is not None and is_spark_worker() else None
    if option is None or spark is None:
        return False

    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == _OLDEST:
            # Only until something is sent.
            with suppress(OSError):
                spark.setsockopt(socket.IPPROTO_TCP, option, 1)

    gc.callbacks.append(collected)
    return True


def _first_connection() -> socket.socket | None:
    """A worker begins with the connection to Spark: no other has a lower number."""
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                found = socket.socket(fileno=os.dup(number))
                if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                    return found
                found.close()
        except OSError:
            # Closed meanwhile.
            continue
    return None
