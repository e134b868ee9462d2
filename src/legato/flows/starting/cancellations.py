"""Cancelled flows: every service learns their ids, immediately or when it starts."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from legato.client import Connection, JMSError, JMSSecurityError, Message, Queue, TextMessage, Topic
from legato.errors import FlowBackendError

RETENTION_S = 24 * 3600
CANCELLED_MAX = 100_000
"""Of more, the oldest are forgotten."""
LOOKS_MAX = 8
LOOK_AGAIN_S = 0.2
NAME = "cancelled"


class Cancelled:
    """The ids of cancelled flows.

    Each is a message of a queue, that stays there for a day and that a service which starts looks through, and of a
    topic, which those that run hear.

    Args:
        prefix: of the names of both.
    """

    def __init__(self, prefix: str) -> None:
        self._queue = Queue(f"{prefix}{NAME}")
        self._topic = Topic(f"{prefix}{NAME}.now")
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self._follows = False

    def has(self, flow_id: str) -> bool:
        """Whether that flow is cancelled."""
        return flow_id in self._ids

    def follow(self, connection: Connection) -> None:
        """Hear of all that are and will be cancelled; the connection's end ends it.

        Raises:
            JMSError: no broker can be reached.
        """
        self._follows = True
        connection.create_session().create_consumer(self._topic).message_listener = self._take
        for attempt in range(1, LOOKS_MAX + 1):
            try:
                self._look_through(connection)
                return
            except JMSError as error:
                if attempt == LOOKS_MAX or isinstance(error, JMSSecurityError):
                    raise  # A failover cuts a look through the queue off; so many in a row are something else.
                # Where much else goes on, a failover may take longer than several looks.
                time.sleep(attempt * LOOK_AGAIN_S)

    def follow_again(self, connection: Connection) -> None:
        """If it followed, hear it by another connection: the former one is gone for good.

        Raises:
            JMSError: no broker can be reached.
        """
        if self._follows:
            self.follow(connection)

    def _look_through(self, connection: Connection) -> None:
        with connection.create_session() as session, session.create_browser(self._queue) as browser:
            for message in browser:
                self._take(message)

    def cancel(self, connection: Connection, flow_id: str) -> None:
        """Tell all services.

        Raises:
            FlowBackendError: nothing was committed.
        """
        try:
            with connection.create_session(transacted=True) as session:
                for destination in (self._queue, self._topic):
                    producer = session.create_producer(destination)
                    producer.send(TextMessage(flow_id), time_to_live_ms=RETENTION_S * 1000)
                session.commit()
        except JMSError as error:
            raise FlowBackendError(f"Flow {flow_id} was not cancelled: {error}") from error

    def _take(self, message: Message) -> None:
        if isinstance(message, TextMessage) and message.body:
            with self._lock:
                self._ids[message.body] = None
                while len(self._ids) > CANCELLED_MAX:
                    self._ids.popitem(last=False)
