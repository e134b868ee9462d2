"""Annotations by which handlers are given what belongs to their message."""

from __future__ import annotations

from typing import Annotated

from faststream import Context
from faststream.annotations import ContextRepo, Logger
from faststream.params import NoCast

from legato.faststream.broker import LegatoBroker as Broker
from legato.faststream.message import LegatoMessage as Received

LegatoMessage = Annotated[Received, Context("message")]
LegatoBroker = Annotated[Broker, Context("broker")]

__all__ = ["ContextRepo", "LegatoBroker", "LegatoMessage", "Logger", "NoCast"]
