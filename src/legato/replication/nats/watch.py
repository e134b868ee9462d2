"""A watch of a stream: a consumer that is made anew after each loss, silence or gap."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from threading import Condition

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from legato.errors import LogError
from legato.replication.engine import Message
from legato.replication.nats.answers import Refusal, result
from legato.replication.nats.connection import Connection

HEARTBEAT_S = 1.0
HEARTBEATS_MISSED_MAX = 3
WAITING_BYTES_MAX = 32 << 20
"""What waits to be taken; servers send no more meanwhile, since flow control is not answered."""
RETRY_S = 0.2
REQUEST_S = 2.0

_FLOW_CONTROL, _STALLED = "FlowControl", "Nats-Consumer-Stalled"


class NatsWatch:
    """Messages of a stream as they come.

    The servers' consumers may skip and repeat: whoever takes the messages looks at their numbers.

    Args:
        connection: to the servers.
        first: the sequence of the first message.
    """

    def __init__(self, connection: Connection, first: int) -> None:
        self._connection = connection
        self._next = first
        self._waiting: deque[Message] = deque()
        self._size = 0
        self._changed = Condition()
        self._closed = False
        self._room = asyncio.Event()
        self._cancel = connection.start(self._follow)

    def take(self, timeout_s: float) -> Sequence[Message]:
        """As `Watch.take`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, timeout_s)
            taken, self._size = list(self._waiting), 0
            self._waiting.clear()
        if taken:
            self._connection.soon(self._room.set)
        return taken

    def close(self) -> None:
        """As `Watch.close`."""
        self._cancel()
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()

    async def _follow(self) -> None:
        while True:
            client = await self._connection.client()
            lost = asyncio.ensure_future(self._connection.lost(client))
            consuming = asyncio.ensure_future(self._consume(client))
            try:
                await asyncio.wait((lost, consuming), return_when=asyncio.FIRST_COMPLETED)
                if consuming.done() and not consuming.cancelled():
                    consuming.exception()  # why it ended does not matter: another begins
            finally:
                for task in (lost, consuming):
                    task.cancel()
                await asyncio.gather(lost, consuming, return_exceptions=True)
            await asyncio.sleep(RETRY_S)

    async def _consume(self, client: Client) -> None:
        """Receive from one consumer until it fails, falls silent, or has a gap."""
        inbox = client.new_inbox()
        received: asyncio.Queue[Msg] = asyncio.Queue()
        subscription = await client.subscribe(inbox, cb=received.put)
        name = ""
        number = 0
        try:
            name = await self._new_consumer(inbox)
            while True:
                message = await asyncio.wait_for(received.get(), HEARTBEATS_MISSED_MAX * HEARTBEAT_S)
                if message.headers and "Status" in message.headers:
                    await self._answer_flow_control(client, message)
                    continue
                sequence, count = _numbers(message.reply)
                if count != number + 1:
                    return
                number = count
                self._put(Message(sequence, message.data))
                while self._size > WAITING_BYTES_MAX:
                    self._room.clear()
                    await self._room.wait()
        finally:
            with contextlib.suppress(Error, OSError):
                await subscription.unsubscribe()
            # One that was made, though its answer did not come, ends as nobody subscribes to what it sends.
            with contextlib.suppress(Error, OSError):
                if name:
                    await client.publish(f"$JS.API.CONSUMER.DELETE.{self._connection.settings.stream}.{name}")

    async def _new_consumer(self, inbox: str) -> str:
        stream = self._connection.settings.stream
        request = {
            "stream_name": stream,
            "config": {
                "deliver_subject": inbox,
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": self._next,
                "ack_policy": "none",
                "max_deliver": 1,
                "replay_policy": "instant",
                "mem_storage": True,
                "num_replicas": 1,
                "flow_control": True,
                "idle_heartbeat": int(HEARTBEAT_S * 1e9),
                "inactive_threshold": 10_000_000_000,
            },
        }
        subject = f"$JS.API.CONSUMER.CREATE.{stream}"
        answer = await self._connection.request(subject, msgspec.json.encode(request), REQUEST_S)
        try:
            return str(result(answer.data)["name"])
        except Refusal as refusal:
            raise LogError(str(refusal)) from None

    def _put(self, message: Message) -> None:
        with self._changed:
            self._waiting.append(message)
            self._size += len(message.data)
            self._next = message.sequence + 1
            self._changed.notify_all()

    @staticmethod
    async def _answer_flow_control(client: Client, message: Msg) -> None:
        headers = message.headers or {}
        if message.reply and _FLOW_CONTROL in headers.get("Description", ""):
            await client.publish(message.reply)
        elif _STALLED in headers:
            await client.publish(headers[_STALLED])


def _numbers(reply: str) -> tuple[int, int]:
    """The sequence in the stream and the number of the delivery, of the subject for acknowledgements.

    `$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<number>.<time>.<pending>`; with a domain and a hash of the
    account before the stream, if servers are set so.
    """
    tokens = reply.split(".")
    sequence, number = (tokens[5], tokens[6]) if len(tokens) == 9 else (tokens[7], tokens[8])
    return int(sequence), int(number)
