"""Both clients and a real broker for every story."""

from tests.support.clients import brokers, calm_pair, client_id, connect, context, factory, pair, queue_name, topic_name

__all__ = ["brokers", "calm_pair", "client_id", "connect", "context", "factory", "pair", "queue_name", "topic_name"]
