"""Administrators of a drill: they move, purge and reissue messages while clients work and brokers fail."""

import threading
from collections.abc import Callable

from legato.client.management import request
from legato.drill.load import Client, Work
from legato.drill.management import DEAD
from legato.errors import JMSError

PAUSE_S = 0.5
REISSUE_PAUSE_S = 5.0
"""A dead letter that is reissued dies again after its last delivery, which takes about so long."""
MOVED_AT_ONCE = 50


class Administrator:
    """Asks one thing of the broker again and again, until it is asked to stop.

    An answer may be lost with its broker: then nobody knows whether it was done, and it is asked again.

    Args:
        url: of the brokers.
    """

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set; who moves messages goes on until nothing waits."""
        works = {Work.MOVE: self._move, Work.PURGE: self._purge, Work.REISSUE: self._reissue}
        work = works[self._client.work]
        pause_s = REISSUE_PAUSE_S if self._client.work is Work.REISSUE else PAUSE_S
        while not stop.wait(pause_s):
            self._try(work)
        while self._client.work is not Work.REISSUE and self._try(work) != 0:
            pass

    def _try(self, work: Callable[[], int]) -> int | None:
        """How many messages it was done with; None if that is not known."""
        try:
            return work()
        except JMSError:
            return None

    def _move(self) -> int:
        client = self._client
        return int(request(self._url, "move", "queue", client.flow, to=client.to, limit=MOVED_AT_ONCE)["moved"])

    def _purge(self) -> int:
        return int(request(self._url, "purge", "queue", self._client.flow)["purged"])

    def _reissue(self) -> int:
        flow = self._client.flow
        return int(request(self._url, "move", "queue", f"{DEAD}{flow}", to=flow)["moved"])
