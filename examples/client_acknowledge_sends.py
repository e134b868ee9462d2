"""What a CLIENT_ACKNOWLEDGE session sends is outside any transaction: it stays sent (CONTRACT A8).

A clerk receives an order, sends the invoice, and is about to acknowledge the order when the primary dies. The invoice
is there. The order is the clerk's still, and can be acknowledged.

Run it: python examples/client_acknowledge_sends.py
"""

from legato.client import AcknowledgeMode, ConnectionFactory, TextMessage
from legato.testing import broker_pair


def main() -> None:
    with broker_pair() as brokers, ConnectionFactory(brokers.url).create_connection() as connection:
        connection.start()
        clerk = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        orders, invoices = clerk.create_queue("orders"), clerk.create_queue("invoices")
        producer = clerk.create_producer()
        producer.send(TextMessage("one pound of tea"), destination=orders)

        orders_in = clerk.create_consumer(orders)
        order = orders_in.receive(timeout_s=10)
        print("order:", order.text)
        producer.send(TextMessage("12.50 EUR"), destination=invoices)
        print("invoice: sent; the order is not acknowledged yet")

        print(brokers.primary.name, "is killed")
        brokers.kill_primary()
        print(brokers.primary.name, "serves")

        customer = connection.create_session()
        invoice = customer.create_consumer(invoices).receive(timeout_s=10)
        assert invoice is not None, "the invoice must survive"
        print("the customer has the invoice:", invoice.text)

        order.acknowledge()
        assert orders_in.receive_no_wait() is None
        print("the order is acknowledged: none is left")


if __name__ == "__main__":
    main()
