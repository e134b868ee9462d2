"""Brokers: where a console finds them, and how it trusts that they are who they should be."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legato.client import ConnectionFactory
from legato.errors import ConfigError
from legato.ha.members import list_members

OPTIONS: dict[str, Any] = {
    "connect_attempts": 4,  # not for a minute, as a client that starts before its broker may
    "connect_timeout_s": 3.0,
    "reconnect_attempts": 30,
    "prefetch": 200,
    "failover_on_initial_connection": True,
    "close_timeout_s": 1.0,
}
"""Of connections: who looks at a page hears soon that there is nobody, and the next look tries again."""

ANY_HOST = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "[::1]"}
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass
class Brokers:
    """Where brokers are.

    Attributes:
        url: of one or more.
        store: whose members are brokers, too: those that serve, or would, on this machine; None if nobody knows.
        pinned: file with the certificate that they show, and no others; empty: as the URL says.
    """

    url: str
    store: Path | None = None
    pinned: str = ""

    def factory(self) -> ConnectionFactory:
        """Makes connections to whoever serves."""
        context = pinning(Path(self.pinned)) if self.pinned else None
        return ConnectionFactory(self.address(), ssl_context=context, **OPTIONS)

    def address(self) -> str:
        """The URL, with the store's members among its hosts."""
        scheme, _, rest = self.url.partition("://")
        hosts = [reachable(host) for host in rest.split(",")]
        if self.store is not None:
            hosts += [reachable(member.listen) for member in list_members(self.store) if member.listen]
        return f"{scheme}://{','.join(dict.fromkeys(hosts))}"


def reachable(listen: str) -> str:
    """Where a broker of this machine is reached that listens there."""
    host, colon, port = listen.rpartition(":")
    return f"{ANY_HOST.get(host, host)}{colon}{port}"


def pinning(certificate: Path) -> ssl.SSLContext:
    """TLS with whoever has the key of one certificate, under any name, and with nobody else.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        text = certificate.read_text()
        # The first one is the broker's own; those who signed it signed others, too.
        own = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=own)
    except (OSError, ValueError) as error:
        raise ConfigError(f"The certificate {certificate} cannot be used: {error}.") from None
    return context
