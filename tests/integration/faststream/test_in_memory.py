"""The FastStream broker without a broker: its test broker, its AsyncAPI page, its FastAPI plug-in."""

from __future__ import annotations

import asyncio
import logging
import warnings
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from faststream import ContextRepo
from faststream.exceptions import SubscriberNotFound
from faststream.specification.asyncapi import AsyncAPI

from legato.faststream import LegatoBroker, LegatoMessage, LegatoRouter, TestLegatoBroker
from legato.faststream.config import LogColumns


@dataclass
class Order:
    item: str
    qty: int = 1


class Bill(pydantic.BaseModel):
    item: str
    pence: int


def shop() -> tuple[LegatoBroker, dict[str, Any]]:
    service = LegatoBroker("amqp://nowhere:1")
    handlers: dict[str, Any] = {}

    @service.subscriber("orders", description="What is ordered.")
    @service.publisher("bills")
    async def bill(order: Order, message: LegatoMessage) -> Bill:
        if order.qty == 0:
            raise ValueError("nothing is ordered")
        return Bill(item=order.item, pence=250 * order.qty)

    @service.subscriber("bills")
    def file(bill: Bill) -> None:
        """File a bill."""

    router = LegatoRouter(prefix="shop.")

    @router.subscriber(topic="prices", subscription="one")
    @router.subscriber(topic="prices", subscription="two")
    async def price(name: str) -> None: ...

    @service.subscriber("double")
    async def double(number: int) -> int:
        return 2 * number

    service.include_router(router)
    return service, {**handlers, "bill": bill, "file": file, "price": price}


def test_published_messages_are_given_to_handlers_and_their_results_to_the_next() -> None:
    async def story() -> None:
        service, handlers = shop()
        async with TestLegatoBroker(service) as memory:
            await memory.publish(Order("tea", 2), "orders")
            handlers["bill"].mock.assert_called_once_with({"item": "tea", "qty": 2})
            handlers["file"].mock.assert_called_once_with({"item": "tea", "pence": 500})
            reply = await memory.request(21, "double")
            assert await reply.decode() == 42
            await memory.publish("tea", topic="shop.prices")
            assert handlers["price"].mock.call_count == 2
            for _ in range(2):
                await memory.publish(Order("once"), "orders", duplicate_id="o1")
            assert handlers["bill"].mock.call_count == 2
            with pytest.raises(ValueError, match="nothing is ordered"):
                await memory.publish(Order("tea", 0), "orders")
            with pytest.raises(SubscriberNotFound, match="nobody"):
                await memory.request(1, "nobody")

    asyncio.run(story())


def test_the_asyncapi_page_shows_channels_messages_and_the_server() -> None:
    service, _ = shop()
    page = AsyncAPI(service, title="Shop").to_specification().to_jsonable()
    assert page["servers"]["development"]["host"] == "nowhere:1"
    assert (page["servers"]["development"]["protocol"], page["servers"]["development"]["protocolVersion"]) == (
        "amqp",
        "1.0.0",
    )
    channels = {channel["address"]: name for name, channel in page["channels"].items()}
    assert channels.keys() >= {"orders", "bills", "double", "topic://shop.prices"}
    assert page["channels"][channels["orders"]]["description"] == "What is ordered."
    assert page["components"]["schemas"]["Order"]["properties"].keys() == {"item", "qty"}
    assert "Bill" in page["components"]["schemas"]


def test_fastapi_starts_the_broker_and_shares_its_dependencies() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi import Depends, FastAPI
        from fastapi.testclient import TestClient

        from legato.faststream.fastapi import LegatoRouter as FastAPIRouter

    from legato.testing import broker

    with broker() as running:
        router = FastAPIRouter(running.url)
        app = FastAPI()
        done: list[tuple[str, int]] = []

        def price() -> int:
            return 250

        @router.subscriber("orders")
        async def bill(order: Order, price: int = Depends(price)) -> None:
            done.append((order.item, price))

        @app.post("/orders")
        async def order(order: Order) -> None:
            await router.broker.publish(order, "orders")

        app.include_router(router)
        with TestClient(app) as client:
            assert client.post("/orders", json={"item": "tea"}).status_code == 200
            running.wait_until_empty("orders")
            assert client.get("/asyncapi").status_code == 200
        assert done == [("tea", 250)]


def test_the_log_tells_the_messages_of_one_program_apart() -> None:
    """FastStream shows the first characters of an id, which are the same for all that one connection sends."""
    logger = LogColumns().get_logger(context=ContextRepo())
    shown = set()
    for number in (1, 2):
        extra = {"message_id": f"ID:afd62776-f495-4eab-919e-0d78badbd0be:s1:p1:{number}"}
        record = logger.makeRecord(logger.name, logging.INFO, __file__, 1, "Received", (), None, extra=extra)
        assert logger.filter(record)
        shown.add(logger.handlers[0].format(record).split(" | ")[1])
    assert shown == {"dbd0be:s1:p1:1 - Received", "dbd0be:s1:p1:2 - Received"}
