"""A session keeps nothing of producers that are closed, whose links were another group's."""

from __future__ import annotations

from legato.client import Queue
from tests.integration.client.test_producers_kept import links, reply_to_deleted
from tests.integration.groups.conftest import Connect, Groups


def test_a_closed_producer_is_not_kept_for_another_groups_destination(calm_groups: Groups, connect: Connect) -> None:
    """It was, once for each reply of a service that makes a producer for each."""
    session = connect(calm_groups.url("orders")).create_session()
    for _ in range(3):
        with session.create_producer() as producer:
            producer.send("reply", destination=Queue("rest.reply"))
    (below,) = session._groups
    assert below._members.producers == []
    assert links(below) == []


def test_a_producer_keeps_no_links_to_deleted_destinations_of_another_group(
    calm_groups: Groups, connect: Connect
) -> None:
    session = connect(calm_groups.url("orders")).create_session()
    producer = session.create_producer()
    for _ in range(3):
        reply_to_deleted(lambda: connect(calm_groups.url("rest")), producer)
    producer.send("stays", destination=Queue("rest.reply"))
    (below,) = session._groups
    assert len(links(below)) == 1
    producer.close()
    assert links(below) == []
    assert links(session) == []
    with session.create_producer() as producer:
        reply_to_deleted(lambda: connect(calm_groups.url("rest")), producer)
    assert links(below) == []
