"""Brokers for the client's tests: one pair for tests that leave it alone, a fresh pair for those that kill."""

from tests.support.clients import (
    brokers,
    calm_pair,
    client_id,
    connect,
    context,
    factory,
    forgetful_pair,
    pair,
    queue_name,
    shared_pair,
    topic_name,
)

__all__ = [
    "brokers",
    "calm_pair",
    "client_id",
    "connect",
    "context",
    "factory",
    "forgetful_pair",
    "pair",
    "queue_name",
    "shared_pair",
    "topic_name",
]
