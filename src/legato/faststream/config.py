"""Settings of brokers and routers."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from faststream._internal.configs import BrokerConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.exceptions import IncorrectState

from legato.client.aio import Connection
from legato.faststream.producer import LegatoProducer

_MESSAGE_ID_WIDTH = 14
"""Of the last characters of an id, which tell apart what one program sends: its first ones are that program's."""


@dataclass(kw_only=True)
class LegatoBrokerConfig(BrokerConfig):
    """Settings of a broker or a router, and the broker's connection."""

    _connection: Connection | None = field(default=None, init=False, repr=False)

    @property
    def connection(self) -> Connection:
        """The broker's connection.

        Raises:
            IncorrectState: there is none.
        """
        if self._connection is None:
            raise IncorrectState("The broker is not connected: call connect() or start() first.")
        return self._connection

    def connect(self, connection: Connection) -> None:
        """Use a connection."""
        self._connection = connection
        producer = cast(LegatoProducer, self.producer)
        producer.connect(connection, self.fd_config._serializer, self.broker_codec)

    async def disconnect(self) -> None:
        """Use it no more."""
        if self._connection is not None:
            self._connection = None
            await cast(LegatoProducer, self.producer).disconnect()


def _shorten_id(record: logging.LogRecord) -> bool:
    record.message_id = record.message_id[-_MESSAGE_ID_WIDTH:]  # type: ignore[attr-defined]
    return True


class LogColumns(DefaultLoggerStorage):
    """FastStream's log with a column for the address."""

    def __init__(self) -> None:
        super().__init__()
        self._address_width = 4
        self.logger_log_level = logging.INFO

    def set_level(self, level: int) -> None:
        """Log from this level on."""
        self.logger_log_level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Make room for an address."""
        self._address_width = max(self._address_width, len(params.get("address", "")))

    def get_logger(self, *, context: Any) -> Any:
        """The logger, made when it is first asked for."""
        logger = self._get_logger_ref()
        if not logger:
            logger = get_broker_logger(
                name="legato",
                default_context={"address": ""},
                message_id_ln=sys.maxsize,
                fmt=(
                    f"%(asctime)s %(levelname)-8s - %(address)-{self._address_width}s | "
                    f"%(message_id)-{_MESSAGE_ID_WIDTH}s - %(message)s"
                ),
                context=context,
                log_level=self.logger_log_level,
            )
            logger.addFilter(_shorten_id)
            self._logger_ref.add(logger)
        return logger


make_legato_logger_state = partial(make_logger_state, default_storage_cls=LogColumns)
