"""A FastStream service on Legato that bills orders; its database says which, and how often each handler ran.

legato serve --store store --listen localhost:5672      # and a backup: --listen localhost:5673
python examples/faststream_orders/orders.py             # the service
python examples/faststream_orders/orders.py 100         # orders 1 to 100
"""

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass

from faststream import FastStream

from legato.faststream import LegatoBroker, LegatoMessage

BROKER_URL = os.environ.get("BROKER_URL", "amqp://localhost:5672,localhost:5673")
DATABASE = os.environ.get("ORDERS_DATABASE", "bills.db")


@dataclass
class Order:
    """What is ordered."""

    number: int


@dataclass
class Bill:
    """What has to be paid."""

    number: int
    pence: int


broker = LegatoBroker(BROKER_URL)
app = FastStream(broker)


@broker.subscriber("orders", max_workers=4, retry_delay_s=0.1)
@broker.publisher("bills")
async def bill(order: Order, message: LegatoMessage) -> Bill:
    """Bill an order; every tenth fails the first time."""
    if order.number % 10 == 0 and message.delivery_count == 1:
        raise ConnectionError("the tax office does not answer")
    return Bill(order.number, 250 * order.number)


@broker.subscriber("bills")
def file(bill: Bill) -> None:
    """File a bill."""
    with closing(sqlite3.connect(DATABASE, timeout=30)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS bills (number INTEGER, pence INTEGER)")
        database.execute("INSERT INTO bills VALUES (?, ?)", (bill.number, bill.pence))


async def order(count: int) -> None:
    """Order some."""
    async with LegatoBroker(BROKER_URL) as sender:
        for number in range(1, count + 1):
            # Returns when the broker has stored it.
            await sender.publish(Order(number), "orders", priority=9 if number % 7 == 0 else None)
    print(f"{count} orders are stored.")


if __name__ == "__main__":
    asyncio.run(order(int(sys.argv[1])) if len(sys.argv) > 1 else app.run())
