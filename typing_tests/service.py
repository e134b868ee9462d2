"""A service of FastStream, and what its handlers and tests have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, assert_type

from faststream import AckPolicy, Context, Depends, FastStream, Logger

from legato.faststream import (
    LegatoBroker,
    LegatoMessage,
    LegatoPublisher,
    LegatoResponse,
    LegatoRouter,
    TestLegatoBroker,
)


@dataclass
class Order:
    item: str
    quantity: int = 1


broker = LegatoBroker("amqp://localhost:5672", options={"prefetch": 5})
app = FastStream(broker)
router = LegatoRouter(prefix="shop.")
bills = broker.publisher("bills", title="Bills", schema=Order)
assert_type(bills, LegatoPublisher)


def pence() -> int:
    return 250


@broker.subscriber("orders", ack_policy=AckPolicy.MANUAL, max_workers=4)
@bills
@broker.publisher(topic="billed")
async def bill(order: Order, message: LegatoMessage, log: Logger, price: Annotated[int, Depends(pence)]) -> Any:
    log.info("%s costs %d", order.item, price)
    assert_type(message.delivery_count, int)
    assert_type(message.headers, dict[str, Any])
    await message.nack(delay_s=3)
    await message.reject("nobody drinks it")
    return LegatoResponse(order, priority=4)


@router.subscriber(topic="prices", subscription="archive")
def archive(name: str, key: Annotated[str, Context("message.headers.key")]) -> None: ...


broker.include_router(router)


async def main() -> None:
    async with broker:
        await broker.start()
        assert_type(await broker.request(Order("tea"), "orders", timeout=4), LegatoMessage)
        await bills.publish(Order("tea"), priority=3, headers={"trace": "abc"})
        assert_type(await broker.ping(3), bool)
        subscriber = broker.subscriber("letters")
        assert_type(await subscriber.get_one(timeout=3), LegatoMessage | None)
        async for letter in subscriber:
            assert_type(letter, LegatoMessage)
            await letter.ack()


async def test_orders_are_billed() -> None:
    async with TestLegatoBroker(broker) as memory:
        assert_type(memory, LegatoBroker)
        await memory.publish(Order("tea"), "orders")
    async with TestLegatoBroker(broker, LegatoBroker()) as several:
        assert_type(several, tuple[LegatoBroker, ...])
