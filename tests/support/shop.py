"""A shop for tests of flows: an endpoint of two stages that asks another endpoint for prices."""

from __future__ import annotations

import queue

import msgspec

from legato.flows import Context, Flows


class Order(msgspec.Struct):
    item: str
    quantity: int


class Receipt(msgspec.Struct):
    item: str
    price: float


class Placing(msgspec.Struct):
    order: Order | None = None


def declare_place(flows: Flows) -> None:
    """The endpoint `Orders.place`, whose prices (`Prices.of`) somebody else has."""
    place = flows.endpoint("Orders.place", state=Placing)

    @place.stage
    def received(context: Context[Placing], order: Order) -> None:
        context.state.order = order
        context.request("Prices.of", order.item)

    @place.last_stage
    def priced(context: Context[Placing], price: float) -> Receipt:
        order = context.state.order
        assert order is not None
        return Receipt(order.item, price * order.quantity)


def declare_shop(flows: Flows) -> queue.SimpleQueue[tuple[str, Receipt]]:
    """The endpoint, one with prices, and a terminator `Orders.done`: trace ids and replies that came to it."""
    receipts: queue.SimpleQueue[tuple[str, Receipt]] = queue.SimpleQueue()
    declare_place(flows)

    @flows.single("Prices.of")
    def price(context: Context[None], item: str) -> float:
        return float(len(item))

    @flows.terminator("Orders.done")
    def done(context: Context[None], receipt: Receipt) -> None:
        context.after_commit(lambda: receipts.put((context.trace_id, receipt)))

    return receipts
