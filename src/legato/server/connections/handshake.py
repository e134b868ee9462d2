"""Handshake of new connections: the settings of the broker's open, and what backups log in with."""

from __future__ import annotations

import secrets
import socket
from typing import Any

from legato import __version__
from legato.amqp import names
from legato.amqp.engine.settings import Settings
from legato.server.config.configuration import Config
from legato.server.config.discovery import FAILOVER_SERVER_LIST, server_list

OFFERED = ["ANONYMOUS-RELAY", "DELAYED_DELIVERY", "SHARED-SUBS", "sole-connection-for-container"]
"""What Qpid JMS looks for (amqp.md A1.4)."""


class Handshake:
    """The handshake settings of one epoch."""

    def __init__(self, config: Config, epoch: int) -> None:
        self._config = config
        self.backup_token = secrets.token_urlsafe()
        """What backups log in with; the lock's file tells it to whoever may use the store."""
        self.container_id = config.server.container_id or f"legato@{socket.gethostname()}"
        self._properties: dict[str, Any] = {"product": "legato", "version": __version__, names.EPOCH: epoch}
        self._properties[names.RECONNECT_TIMEOUT] = float(config.server.reconnect_timeout_s)
        if config.groups.name:
            self._properties[names.GROUP] = config.groups.name
        if config.ha.addresses:
            self._properties[FAILOVER_SERVER_LIST] = server_list(
                config.ha.addresses, secure=bool(config.tls.certificate)
            )

    def settings(self) -> Settings:
        """Settings and limits of the broker's end of a connection."""
        return Settings(
            container_id=self.container_id,
            max_frame_bytes=self._config.server.max_frame_bytes,
            idle_timeout_ms=self._config.server.idle_timeout_ms,
            max_message_bytes=self._config.server.max_message_bytes,
            properties=self._properties,
            offered_capabilities=OFFERED,
        )
