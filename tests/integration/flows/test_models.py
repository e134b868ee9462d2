"""Flows whose requests, replies and states are models of pydantic, on a real broker and in the harness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import pydantic
import pytest

from legato.client import ConnectionFactory, Queue, TextMessage
from legato.errors import FlowFailedError, MessageFormatError
from legato.flows import Context, Flows, Policy
from legato.testing import FlowHarness

WAIT_S = 60.0


class Order(pydantic.BaseModel):
    item: str
    quantity: int = pydantic.Field(default=1, gt=0, alias="qty")


@dataclass
class Receipt:
    """A model in what is none."""

    order: Order
    total: Decimal


class Placing(pydantic.BaseModel):
    order: Order | None = None


def declare(flows: Flows, receipts: str) -> None:
    place = flows.endpoint("Models.place", state=Placing, plain=True)

    @place.stage
    def received(context: Context[Placing], order: Order) -> None:
        context.state.order = order
        context.request("Models.price", order.item)

    @place.last_stage
    def priced(context: Context[Placing], price: Decimal) -> Receipt:
        order = context.state.order
        assert order is not None
        context.send_message(receipts, Receipt(order, price * order.quantity))
        return Receipt(order, price * order.quantity)

    @flows.single("Models.price")
    def price(context: Context[None], item: str) -> Decimal:
        return Decimal("1.50")


def test_models_go_through_stages_as_requests_replies_and_states(make_flows: Callable[..., Flows], prefix: str) -> None:
    flows = make_flows(policy=Policy(concurrency=1))
    declare(flows, f"{prefix}receipts")
    flows.start()

    def ask(order: object) -> Receipt:
        receipt: Receipt = flows.request(
            "Models.place", order, reply=Receipt, trace_id="models:17", timeout_s=WAIT_S
        ).result()
        return receipt

    receipt = Receipt(Order(item="tea", qty=2), Decimal("3.00"))
    assert ask(Order(item="tea", qty=2)) == receipt
    with pytest.raises(FlowFailedError, match=r"\$.qty: Input should be greater than 0"):
        ask({"item": "tea", "qty": 0})
    with pytest.raises(MessageFormatError, match="The object cannot be sent as JSON"):
        ask(object())


def test_the_harness_takes_models(prefix: str) -> None:
    flows = Flows("amqp://nobody", prefix=prefix)
    declare(flows, f"{prefix}receipts")
    with FlowHarness(flows) as harness:
        receipt = Receipt(Order(item="tea", qty=2), Decimal("3.00"))
        assert harness.request("Models.place", Order(item="tea", qty=2), reply=Receipt) == receipt
        harness.assert_no_dead_letters()


def test_a_plain_message_is_read_as_a_model(
    make_flows: Callable[..., Flows], prefix: str, request: pytest.FixtureRequest
) -> None:
    flows = make_flows(policy=Policy(concurrency=1))
    declare(flows, f"{prefix}receipts")
    flows.start()
    with ConnectionFactory(request.getfixturevalue("calm_pair").url).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        session.create_producer(Queue(f"{prefix}Models.place")).send(TextMessage('{"item": "tea", "qty": 3}'))
        message = session.create_consumer(Queue(f"{prefix}receipts")).receive(timeout_s=WAIT_S)
        assert message is not None
        assert message.json(Receipt) == Receipt(Order(item="tea", qty=3), Decimal("4.50"))


def test_a_state_whose_model_has_no_defaults_is_refused_where_it_is_declared() -> None:
    with pytest.raises(TypeError, match="every field of a state needs a default"):
        Flows("amqp://nobody").endpoint("Models.place", state=Order)
