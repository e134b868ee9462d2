"""Examples of FastStream's own documentation, with Legato's broker in place of another and nothing else.

From its README and faststream.ag2.ai: quickstart, validation, dependencies and context, lifespan, routers, requests,
filters, publishing, FastAPI, tests in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends as FastApiDepends
from fastapi import FastAPI
from faststream import BaseMiddleware, Context, ContextRepo, Depends, FastStream, Logger, TestApp
from faststream.specification.asyncapi import AsyncAPI
from pydantic import BaseModel, Field, NonNegativeFloat, PositiveInt

from legato.faststream import LegatoBroker, LegatoMessage, LegatoRouter, TestLegatoBroker
from legato.faststream.fastapi import LegatoRouter as FastApiRouter
from legato.testing import LocalBroker, broker

WAIT_S = 60.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running() -> Iterator[LocalBroker]:
    with broker() as started:
        yield started


def serve(app: FastStream, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the application while a story is told, as `faststream run` does."""

    async def main() -> None:
        async with asyncio.timeout(4 * WAIT_S), TestApp(app):
            await story()

    asyncio.run(main())


class User(BaseModel):
    user: str = Field(..., examples=["John"])
    user_id: PositiveInt = Field(..., examples=["1"])


def test_the_first_example_of_the_readme(running: LocalBroker) -> None:
    """`@broker.subscriber("in")`, `@broker.publisher("out")`, validated by pydantic."""
    broker = LegatoBroker(running.url)
    app = FastStream(broker)
    out: asyncio.Queue[str] = asyncio.Queue()

    @broker.subscriber("in")
    @broker.publisher("out")
    async def handle_msg(data: User) -> str:
        return f"User: {data.user} - {data.user_id} registered"

    @broker.subscriber("out")
    async def hear(text: str) -> None:
        await out.put(text)

    async def story() -> None:
        await broker.publish({"user": "John", "user_id": 1}, "in")
        assert await out.get() == "User: John - 1 registered"

    serve(app, story)


def test_its_test_in_memory() -> None:
    broker = LegatoBroker("amqp://nobody")

    @broker.subscriber("in")
    @broker.publisher("out")
    async def handle_msg(data: User) -> str:
        return f"User: {data.user} - {data.user_id} registered"

    @broker.subscriber("out")
    async def hear(text: str) -> None: ...

    async def main() -> None:
        async with TestLegatoBroker(broker) as br:
            await br.publish({"user": "John", "user_id": 1}, "in")
            handle_msg.mock.assert_called_once_with({"user": "John", "user_id": 1})
            hear.mock.assert_called_once_with("User: John - 1 registered")

    asyncio.run(main())


def test_dependencies_context_and_lifespan(running: LocalBroker) -> None:
    """`Depends`, `Context()`, `ContextRepo` in `lifespan`, `Logger`."""
    broker = LegatoBroker(running.url)
    heard: asyncio.Queue[Any] = asyncio.Queue()
    ml_models: dict[str, Callable[[float], float]] = {}

    @asynccontextmanager
    async def lifespan(context: ContextRepo) -> AsyncIterator[None]:
        ml_models["answer"] = lambda x: x * 42
        context.set_global("model", ml_models)
        yield
        ml_models.clear()

    async def simple_dependency(a: int, b: int = 3) -> int:
        return a + b

    app = FastStream(broker, lifespan=lifespan)

    @broker.subscriber("numbers")
    async def predict(
        a: int,
        logger: Logger,
        message: LegatoMessage,
        b: int = 2,
        d: int = Depends(simple_dependency),
        model: dict[str, Callable[[float], float]] = Context(),  # noqa: B008
    ) -> None:
        logger.info("%s", a)
        await heard.put((a, b, d, model["answer"](a), message.delivery_count))

    async def story() -> None:
        await broker.publish({"a": 1, "b": 5}, "numbers")
        assert await heard.get() == (1, 5, 6, 42, 1)

    serve(app, story)
    assert ml_models == {}


def test_routers_requests_and_replies(running: LocalBroker) -> None:
    """`Router(prefix=...)`, `broker.request`, `reply_to`."""
    broker = LegatoBroker(running.url)
    router = LegatoRouter(prefix="prefix_")
    app = FastStream(broker)

    @router.subscriber("echo")
    async def echo(name: str, message: LegatoMessage) -> str:
        return name * 2

    broker.include_router(router)

    async def story() -> None:
        answer = await broker.request("tea", "prefix_echo", timeout=WAIT_S)
        assert await answer.decode() == "teatea"

    serve(app, story)


def test_filters_send_messages_to_different_functions(running: LocalBroker) -> None:
    """ "Application-level filtering": by content type."""
    broker = LegatoBroker(running.url)
    app = FastStream(broker)
    heard: asyncio.Queue[Any] = asyncio.Queue()
    subscriber = broker.subscriber("test-queue")

    @subscriber(filter=lambda msg: msg.content_type == "application/json")
    async def handle(name: str, user_id: int) -> None:
        await heard.put((name, user_id))

    @subscriber
    async def default_handler(msg: str) -> None:
        await heard.put(msg)

    async def story() -> None:
        await broker.publish({"name": "John", "user_id": 1}, "test-queue")
        assert await heard.get() == ("John", 1)
        await broker.publish("Hello, FastStream!", "test-queue")
        assert await heard.get() == "Hello, FastStream!"

    serve(app, story)


class DataBasic(BaseModel):
    data: NonNegativeFloat = Field(..., examples=[0.5])


def test_publishers_and_middlewares(running: LocalBroker) -> None:
    """ "Publishing": a publisher as an object, several decorators, a middleware around all."""
    seen: list[str] = []

    class Noting(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen.append("consumed")
            return await call_next(msg)

        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            seen.append(f"published to {cmd.destination}")
            return await call_next(cmd)

    broker = LegatoBroker(running.url, middlewares=[Noting])
    app = FastStream(broker)
    heard: asyncio.Queue[float] = asyncio.Queue()
    to_output = broker.publisher("output_data")

    @to_output
    @broker.subscriber("input_data")
    async def on_input_data(msg: DataBasic) -> DataBasic:
        return DataBasic(data=msg.data + 1.0)

    @broker.subscriber("output_data")
    async def end(msg: DataBasic) -> None:
        await heard.put(msg.data)

    async def story() -> None:
        await broker.publish(DataBasic(data=0.5), "input_data")
        assert await heard.get() == 1.5
        await to_output.publish(DataBasic(data=7))
        assert await heard.get() == 7.0

    serve(app, story)
    assert seen.count("consumed") == 3
    assert seen.count("published to output_data") == 2


def test_the_page_of_the_application_is_made(running: LocalBroker) -> None:
    """`faststream docs gen`: AsyncAPI."""
    broker = LegatoBroker(running.url)

    @broker.subscriber("in")
    @broker.publisher("out")
    async def handle_msg(data: User) -> str:
        """Consumes the message."""
        return data.user

    page = AsyncAPI(broker, title="My app", version="1.0.0").to_specification().to_json()
    for word in ("in:HandleMsg", "out:Publisher", "user_id", "Consumes the message"):
        assert word in page


def call() -> bool:
    return True


class Incoming(BaseModel):
    m: dict[str, Any]


def test_the_plug_in_for_fastapi(running: LocalBroker) -> None:
    """ "FastAPI Integration": a route that publishes, a subscriber with FastAPI's dependencies."""
    router = FastApiRouter(running.url)
    heard: list[str] = []

    @router.subscriber("test")
    @router.publisher("response")
    async def hello(m: Incoming, d: Annotated[bool, FastApiDepends(call)]) -> dict[str, str]:
        return {"response": f"Hello, {m.m['name']}! {d}"}

    answered = asyncio.Event()

    @router.subscriber("response")
    async def end(response: dict[str, str]) -> None:
        heard.append(response["response"])
        answered.set()

    @router.get("/")
    async def hello_http() -> str:
        await router.broker.publish({"m": {"name": "John"}}, "test")
        await asyncio.wait_for(answered.wait(), WAIT_S)
        return "Hello, HTTP!"

    app = FastAPI()
    app.include_router(router)

    async def main() -> None:
        transport = httpx.ASGITransport(app=app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
            assert (await client.get("http://shop/")).json() == "Hello, HTTP!"

    asyncio.run(main())
    assert heard == ["Hello, John! True"]
