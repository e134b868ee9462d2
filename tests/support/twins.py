"""Twins: one test runs against both clients; the asyncio client, each call awaited, looks like the blocking one.

`Loop` runs an event loop in a thread. What it wraps behaves like the blocking client's object: calls wait, `with` is
`async with`, `for` is `async for`. A listener of the test runs in a thread of its own, and what it calls is awaited in
the task that called the listener, as it would be if the listener were a coroutine function.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from legato.client import Message

_IN_LISTENER = threading.local()
_WAIT_S = 60.0
_LISTENERS = ("message_listener", "exception_listener", "failover_listener", "duplicate_listener")


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="asyncio twin", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)
        self._loop.close()

    def run(self, make: Callable[[], Any]) -> Any:
        """Call `make` in the loop, await what it returns if it can be awaited, and return the result, wrapped."""
        channel: _Channel | None = getattr(_IN_LISTENER, "channel", None)
        if channel is not None:
            return self.wrap(channel.ask(make))
        if threading.current_thread() is self._thread:
            # A callback that the client calls from within the loop and that cannot wait.
            return self.wrap(make())
        return self.wrap(asyncio.run_coroutine_threadsafe(_result(make), self._loop).result())

    def wrap(self, value: Any) -> Any:
        """`value`, to be used from outside of the loop."""
        if type(value) in (list, tuple):
            return type(value)(self.wrap(each) for each in value)
        module = type(value).__module__
        if module.startswith("legato.client.aio"):
            return Blocking(self, value)
        if isinstance(value, Message) and value._acknowledge is not None:
            _make_acknowledge_wait(self, value)
        return value

    def unwrap(self, value: Any) -> Any:
        """What the client gets for an argument of the test."""
        if type(value) in (Blocking, BlockingFactory):
            return object.__getattribute__(value, "_wrapped")
        return value

    def listener(self, function: Any) -> Any:
        """A coroutine function that calls the test's function in a thread and awaits for it what it calls."""
        if function is None:
            return None

        async def call(*arguments: Any) -> None:
            await _serve(lambda: function(*map(self.wrap, arguments)))

        return call


class Blocking:
    """An object of the asyncio client, seen by a test that blocks."""

    def __init__(self, loop: Loop, wrapped: Any) -> None:
        object.__setattr__(self, "_loop", loop)
        object.__setattr__(self, "_wrapped", wrapped)

    def __getattr__(self, name: str) -> Any:
        loop, wrapped = self._loop, self._wrapped
        value = getattr(wrapped, name)
        if not callable(value) or isinstance(value, type) or name in _LISTENERS:
            return loop.wrap(value)

        def call(*arguments: Any, **options: Any) -> Any:
            for key in ("completion_listener", "message_listener"):
                if options.get(key) is not None:
                    options[key] = _completion(loop, options[key])
            if name in ("set_message_listener", "set_async", "set_exception_listener"):
                arguments = tuple(_completion(loop, each) for each in arguments)
            unwrapped = [loop.unwrap(each) for each in arguments]
            named = {key: loop.unwrap(each) for key, each in options.items()}
            return loop.run(lambda: value(*unwrapped, **named))

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        loop, wrapped = self._loop, self._wrapped
        given = loop.listener(value) if name in _LISTENERS else loop.unwrap(value)
        loop.run(lambda: setattr(wrapped, name, given))

    def __enter__(self) -> Blocking:
        self._loop.run(lambda: self._wrapped.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(lambda: self._wrapped.__aexit__(None, None, None))

    def __iter__(self) -> Iterator[Any]:
        messages = self._loop.run(self._wrapped.__aiter__)
        while True:
            try:
                yield self._loop.run(messages.__anext__)
            except StopAsyncIteration:
                return

    @property  # type: ignore[misc]  # isinstance() is to see what is wrapped
    def __class__(self) -> Any:
        return type(self._wrapped)

    def __eq__(self, other: object) -> bool:
        return bool(self._wrapped == self._loop.unwrap(other))

    def __hash__(self) -> int:
        return hash(self._wrapped)

    def __repr__(self) -> str:
        return f"<asyncio {self._wrapped!r}>"


class BlockingFactory(Blocking):
    """`ConnectionFactory` of the asyncio client, as a test that blocks sees it."""

    def __init__(self, loop: Loop, *arguments: Any, **options: Any) -> None:
        from legato.client import aio

        super().__init__(loop, aio.ConnectionFactory(*arguments, **options))


class _Channel:
    """How a listener's thread has its calls awaited by the task that called the listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.requests: asyncio.Queue[tuple[Callable[[], Any], queue.SimpleQueue[Any]] | None] = asyncio.Queue()

    def ask(self, make: Callable[[], Any]) -> Any:
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._loop.call_soon_threadsafe(self.requests.put_nowait, (make, answer))
        error, value = answer.get(timeout=_WAIT_S)
        if error is not None:
            raise error
        return value

    def finish(self) -> None:
        self._loop.call_soon_threadsafe(self.requests.put_nowait, None)


async def _result(make: Callable[[], Any]) -> Any:
    value = make()
    return await value if inspect.isawaitable(value) else value


async def _serve(function: Callable[[], Any]) -> None:
    channel = _Channel(asyncio.get_running_loop())
    outcome: list[BaseException] = []

    def run() -> None:
        _IN_LISTENER.channel = channel
        try:
            function()
        except BaseException as error:
            outcome.append(error)
        finally:
            channel.finish()

    threading.Thread(target=run, daemon=True).start()
    while (request := await channel.requests.get()) is not None:
        make, answer = request
        try:
            answer.put((None, await _result(make)))
        except BaseException as error:
            answer.put((error, None))
    if outcome:
        raise outcome[0]


def _completion(loop: Loop, listener: Any) -> Any:
    if listener is None or callable(listener):
        return loop.listener(listener)

    class Listener:
        on_completion = staticmethod(loop.listener(listener.on_completion))
        on_exception = staticmethod(loop.listener(listener.on_exception))

    found = getattr(loop, "_completions", None)
    if found is None:
        found = loop._completions = {}  # type: ignore[attr-defined]
    return found.setdefault(id(listener), (Listener(), listener))[0]


def _make_acknowledge_wait(loop: Loop, message: Any) -> None:
    acknowledge = message._acknowledge
    message._acknowledge = lambda received, **options: loop.run(lambda: acknowledge(received, **options))


def twin_of(something: Any, blocking: Any, asynchronous: Any) -> Any:
    """Of two classes the one that goes with `something`."""
    if type(something) is not Blocking:
        return blocking
    loop: Loop = object.__getattribute__(something, "_loop")
    return lambda *arguments: loop.run(lambda: asynchronous(*map(loop.unwrap, arguments)))
