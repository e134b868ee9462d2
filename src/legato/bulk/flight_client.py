"""Connections to a broker's bulk process, and what it said, in words."""

from __future__ import annotations

from pathlib import Path

import pyarrow.flight as flight

from legato.client.failover.uri import Uri

GONE = (flight.FlightUnavailableError, flight.FlightUnauthenticatedError, flight.FlightInternalError)
"""The broker, or the process beside it, is another one by now: a new ticket is to be had from it."""


def connect(uri: Uri, host: str, port: int, *, tls: bool) -> flight.FlightClient:
    """A connection to the bulk process of a broker; it is opened with the first call.

    Args:
        uri: of the broker, with what its TLS needs.
        host: where that broker serves, as `name:port`.
        port: of its bulk process.
        tls: whether that speaks TLS.

    Raises:
        OSError: a file that the URI names cannot be read.
    """
    location = location_of(host, port, tls=tls)
    if not tls:
        return flight.connect(location)
    options = uri.options
    return flight.connect(
        location,
        tls_root_certs=_content(options.tls_ca_file),
        cert_chain=_content(options.tls_cert_file),
        private_key=_content(options.tls_key_file),
        disable_server_verification=not options.tls_verify,
    )


def location_of(host: str, port: int, *, tls: bool) -> str:
    """Where the bulk process is of the broker that serves at `host`."""
    return f"grpc{'+tls' if tls else ''}://{host.rpartition(':')[0]}:{port}"


def words_of(error: Exception) -> str:
    """What the process for bulk said, without what its library adds for those who know gRPC."""
    words = str(error).partition(" gRPC client debug context:")[0]
    words = words.partition(" Detail: ")[0].removeprefix("Flight returned unknown error, with message: ")
    return words[:-1] if words.endswith("..") else words


def _content(file: str | None) -> bytes | None:
    return Path(file).read_bytes() if file else None
