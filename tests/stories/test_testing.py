"""What `legato.testing` offers to tests of others: a pair that fails over on demand, and is gone afterwards."""

from pathlib import Path

import pytest

from legato.client import ConnectionFactory, JMSError, TextMessage, TransactionRolledBackError
from legato.processes.child import ProcessError
from legato.testing import BrokerPair, broker_pair


def test_a_pair_leaves_nothing_behind() -> None:
    with broker_pair() as brokers:
        processes = [Path(f"/proc/{broker.pid}") for broker in (brokers.primary, brokers.backup)]
        assert all(process.exists() for process in processes)
        assert brokers.store.exists()
    assert not any(process.exists() for process in processes)
    assert not brokers.store.parent.exists()


def test_a_pair_is_a_pair_again_after_a_failover(pair: BrokerPair) -> None:
    """CONTRACT B3."""
    old, new = pair.primary, pair.backup
    epoch = old.epoch
    pair.fail_over()
    assert (pair.primary, pair.backup) == (new, old)
    assert pair.primary.epoch == epoch + 1
    pair.shut_down_primary()
    pair.restart()
    assert (pair.primary, pair.backup) == (old, new)


@pytest.mark.parametrize(("point", "committed"), [("before-commit", False), ("between-commit-and-outcome", True)])
def test_a_failover_happens_exactly_at_the_point_that_is_named(
    pair: BrokerPair, queue_name: str, point: str, committed: bool
) -> None:
    """CONTRACT E14: what the client cannot know, the point decides."""
    with ConnectionFactory(pair.url).create_connection() as connection:
        session = connection.create_session(transacted=True)
        session.create_producer(session.create_queue(queue_name)).send(TextMessage("1"))
        outcome = True
        with pair.failing_over_at(point):
            try:
                session.commit()
            except TransactionRolledBackError:
                outcome = False
        assert outcome == committed
        with session.create_browser(session.create_queue(queue_name)) as browser:
            connection.start()
            assert len(list(browser)) == committed


def test_a_point_that_the_primary_does_not_come_to_is_an_error(pair: BrokerPair) -> None:
    epoch = pair.primary.epoch
    with pytest.raises(ProcessError, match="during-large-message"), pair.failing_over_at("during-large-message"):
        pass
    assert pair.primary.epoch == epoch


def test_what_goes_wrong_in_the_block_is_not_hidden(pair: BrokerPair, queue_name: str) -> None:
    with ConnectionFactory(pair.url, reconnect_attempts=0).create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(session.create_queue(queue_name))
        with pytest.raises(JMSError), pair.failing_over_at("before-commit"):
            producer.send(TextMessage("1"))
    assert pair.backup
