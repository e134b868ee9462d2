"""A reservation: what a queue keeps for a consumer whose connection was lost, until that is back or late."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from legato.core.consumers import Consumer
    from legato.core.message import Message


class Reservation:
    """What one consumer had when its connection was lost.

    Attributes:
        consumer: it, no longer attached; groups that it had are still given to it, that is to nobody.
        messages: those that its application has seen and not settled, in order, by sequence number.
        until_us: how long, by the steady clock.
        leads: it was the one that an exclusive queue gives to.
    """

    __slots__ = ("consumer", "leads", "messages", "until_us")

    def __init__(self, consumer: Consumer, until_us: int, *, leads: bool) -> None:
        self.consumer = consumer
        self.until_us = until_us
        self.leads = leads
        self.messages: dict[int, Message] = {}
