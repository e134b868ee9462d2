"""A failover as TIBCO EMS describes it, step by step (CONTRACT B1-B19, each named where it happens).

A is the primary, B its backup. A falls silent, then dies; clients move to B; what was acknowledged stays so, what was
not comes again; a message goes to somebody else meanwhile; a transaction is rolled back.

Run it: python examples/ems_failover.py
"""

from collections.abc import Iterator
from contextlib import contextmanager

from legato.client import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    FailoverEvent,
    IllegalStateError,
    JMSError,
    Session,
    TextMessage,
    TransactionRolledBackError,
)
from legato.testing import BrokerPair, Network, broker_pair

QUICK = {"LEGATO_HA_HEARTBEAT_INTERVAL_S": "0.1", "LEGATO_HA_ACTIVATION_INTERVAL_S": "0.5"}


def main() -> None:
    with broker_pair(environment=QUICK) as brokers:
        detection_and_lock(brokers)
        clients_move_over(brokers)
        a_late_acknowledgement(brokers)
        an_active_transaction(brokers)


def detection_and_lock(brokers: BrokerPair) -> None:
    print("1. How the backup finds out, and why it does not serve too early")
    primary, backup = brokers.primary, brokers.backup
    brokers.wait_for_backup("backup")
    brokers.pause_primary()
    brokers.wait_for_backup("seeking")
    print(f"   {primary.name} is silent; {backup.name} waited its activation interval, and seeks [B1, B19]")
    assert brokers.backup is backup
    print(f"   {primary.name} holds the lock: {backup.name} does not serve, it tries lock and primary in turn [B2, B6]")
    brokers.continue_primary()
    brokers.wait_for_backup("backup")
    print(f"   {primary.name} is back: {backup.name} goes on as its backup [B6]")

    brokers.kill_primary()
    assert brokers.primary is backup
    print(f"   {primary.name} is killed, its connection breaks: {backup.name} has the lock, and serves [B1, B2]")
    brokers.restart()
    assert brokers.backup is primary
    print(f"   {primary.name} is started again, as the backup of {backup.name} [B3]")


def clients_move_over(brokers: BrokerPair) -> None:
    print("2. Clients that know both brokers move over")
    with connected(brokers.url) as connection, connected(brokers.url) as curious:
        told: list[JMSError] = []
        connection.exception_listener = told.append
        switches: list[FailoverEvent] = []
        curious.failover_listener = switches.append

        send(connection, "orders", "acknowledged", "received", "waiting")
        subscriber = curious.create_session()
        prices = subscriber.create_topic("prices")
        ticker = subscriber.create_consumer(prices)

        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        orders = session.create_consumer(session.create_queue("orders"))
        orders.receive(timeout_s=10).acknowledge()
        assert orders.receive(timeout_s=10).text == "received"
        brokers.fail_over()

        send(connection, "orders", "new")
        again = [orders.receive(timeout_s=10) for _ in range(3)]
        assert [message.text for message in again] == ["received", "waiting", "new"]
        print("   persistent messages that were not acknowledged come again; none is lost [B4, B7, B8]")
        print("   what was acknowledged does not [B9]")
        assert again[0].redelivered
        print("   what had been received says that it comes again [B16]")
        again[-1].acknowledge()
        print("   and can be acknowledged: with one receiver that never fails [B14]")

        subscriber.create_producer(prices).send(TextMessage("2.50"))
        assert ticker.receive(timeout_s=10).text == "2.50"
        print("   the subscriber of a topic goes on [B10]")
        assert not told
        assert len(switches) == 1
        print(f"   nobody is told, but who asked: one switch, in {switches[0].gap_ms:.0f} ms [B5]")


def a_late_acknowledgement(brokers: BrokerPair) -> None:
    print("3. A message that went elsewhere is acknowledged too late")
    with Network(brokers) as network, connected(network.url) as far, connected(brokers.url) as near:
        send(near, "jobs", "paint the door")
        session = far.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        jobs = session.create_consumer(session.create_queue("jobs"))
        job = jobs.receive(timeout_s=10)
        print("   the far receiver has:", job.text)

        network.cut()
        brokers.fail_over()
        other = near.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        taken = receive(other, "jobs")
        assert taken.redelivered
        print("   while it is away, the near one is given the same job, flagged [B11, B16]")
        network.heal()

        try:
            job.acknowledge()
        except IllegalStateError as error:
            print("   acknowledge() raised IllegalStateError:", error, "[B12, B13]")
        else:
            raise AssertionError("acknowledge() must not claim what another receiver has")
        session.recover()
        taken.acknowledge()
        send(near, "jobs", "mend the roof")
        assert jobs.receive(timeout_s=10).text == "mend the roof"
        print("   recover(), and the far receiver goes on [B15]")


def an_active_transaction(brokers: BrokerPair) -> None:
    print("4. A transaction is open while the primary dies")
    with connected(brokers.url) as connection:
        send(connection, "in", "1")
        session = connection.create_session(transacted=True)
        numbers = session.create_consumer(session.create_queue("in"))
        doubled = session.create_producer(session.create_queue("out"))
        brokers.fail_over()
        session.commit()
        print("   committing one in which nothing was done succeeds [B17]")

        doubled.send(TextMessage(str(2 * int(numbers.receive(timeout_s=10).text))))
        brokers.fail_over()
        try:
            session.commit()
        except TransactionRolledBackError:
            print("   committing an active one raised TransactionRolledBackError [B18]")
        else:
            raise AssertionError("commit() must not claim what was lost")

        number = numbers.receive(timeout_s=10)
        assert number.redelivered
        doubled.send(TextMessage(str(2 * int(number.text))))
        session.commit()
        print("   what it had received came again by itself, what it had sent was sent again [B18]")
        assert receive(connection.create_session(), "out").text == "2"


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A started connection that behaves as those of TIBCO EMS do."""
    with ConnectionFactory(url, failover_contract="ems").create_connection() as connection:
        connection.start()
        yield connection


def send(connection: Connection, queue: str, *texts: str) -> None:
    with connection.create_session() as session, session.create_producer(session.create_queue(queue)) as producer:
        for text in texts:
            producer.send(TextMessage(text))


def receive(session: Session, queue: str) -> TextMessage:
    message = session.create_consumer(session.create_queue(queue)).receive(timeout_s=10)
    assert isinstance(message, TextMessage)
    return message


if __name__ == "__main__":
    main()
