"""Legato: durable messaging with Jakarta Messaging semantics that carries on through the failure of its broker."""

__version__ = "0.1.0"
