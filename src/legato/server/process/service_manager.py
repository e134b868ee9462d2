"""The service manager's side channel (`sd_notify`): tells systemd when the broker is ready, what it is, and that its
loop turns. Without `NOTIFY_SOCKET` in the environment it says nothing."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

log = logging.getLogger("legato.service_manager")

PINGS_PER_LIMIT = 4
"""So often within its limit systemd's watchdog hears of us."""

EXTENSION_S = 60.0
"""By so much each report of a long start moves the end of `TimeoutStartSec`."""
REPORT_AGAIN_S = 10.0
"""A report that has not changed is sent again after this time."""


class ServiceManager:
    """Reports to the service manager that started this process, if one did."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        limit_us = environment.get("WATCHDOG_USEC", "")
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._ping_every_s = int(limit_us) / 1e6 / PINGS_PER_LIMIT if limit_us.isdecimal() and mine else 0.0
        self._pinged_s = 0.0
        self._is_ready = False
        self._reported = ("", 0.0)

    @property
    def has_watchdog(self) -> bool:
        """Whether it wants to hear that the loop turns."""
        return bool(self._address and self._ping_every_s)

    def ready(self, status: str) -> None:
        """The process does its part, as `status` says; to say so again is a new status."""
        self._is_ready = True
        self._tell(f"READY=1\nSTATUS={status}")

    def busy(self, status: str) -> None:
        """Something takes long before the process can serve, as `status` says; to be called again and again meanwhile.

        A process that is not ready yet is given more time each time (`EXTEND_TIMEOUT_USEC`).
        """
        now_s = time.monotonic()
        last, last_s = self._reported
        if status == last and now_s - last_s < REPORT_AGAIN_S:
            return
        self._reported = (status, now_s)
        extension = "" if self._is_ready else f"EXTEND_TIMEOUT_USEC={EXTENSION_S * 1e6:.0f}\n"
        self._tell(f"{extension}STATUS={' '.join(status.split())}")

    def stopping(self) -> None:
        """The process was told to stop."""
        self._tell("STOPPING=1")

    def turned(self) -> None:
        """The loop turned."""
        now_s = time.monotonic()
        if self.has_watchdog and now_s - self._pinged_s >= self._ping_every_s:
            self._pinged_s = now_s
            self._tell("WATCHDOG=1")

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.connect(self._address)
                channel.send(state.encode())
        except OSError as error:
            log.debug("! the service manager was not told: %s", error)
