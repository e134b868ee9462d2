"""Proton's engine alone: code shared by the bare broker and the raw load clients."""

import os
from collections.abc import Callable
from typing import Any

from cproton_ffi import ffi, lib

PUSH_BYTES = 65536
OUTPUT_BYTES = 1 << 18
USER_VARIABLE = "LEGATO_BENCH_USER"
"""`NAME:PASSWORD` with which load clients log in; without it they are anonymous."""

# The order in which a delivery's state is read costs more than the reading: these are looked up once.
_peek_event = lib.pn_collector_peek
_pop_event = lib.pn_collector_pop
_event_type = lib.pn_event_type
_push = lib.pn_transport_push
_pending = lib.pn_transport_pending
_peek = lib.pn_transport_peek
_pop = lib.pn_transport_pop
_NULL = ffi.NULL


class Engine:
    """One AMQP connection: bytes in, Proton events to a callback, bytes out."""

    def __init__(self, *, server: bool, container: str, host: str = "localhost") -> None:
        self.connection = lib.pn_connection()
        self.collector = lib.pn_collector()
        lib.pn_connection_collect(self.connection, self.collector)
        lib.pn_connection_set_container(self.connection, container.encode())
        self.transport = lib.pn_transport()
        lib.pn_transport_set_max_frame(self.transport, PUSH_BYTES)
        if server:
            lib.pn_transport_set_server(self.transport)
        else:
            lib.pn_connection_set_hostname(self.connection, host.encode())
            self._log_in(os.environ.get(USER_VARIABLE, ""))
        lib.pn_transport_bind(self.transport, self.connection)
        self._output = bytearray(OUTPUT_BYTES)
        self._output_address = ffi.from_buffer(self._output)

    def _log_in(self, user: str) -> None:
        sasl = lib.pn_sasl(self.transport)
        if not user:
            lib.pn_sasl_allowed_mechs(sasl, b"ANONYMOUS")
            return
        name, _, password = user.partition(":")
        lib.pn_connection_set_user(self.connection, name.encode())
        lib.pn_connection_set_password(self.connection, password.encode())
        lib.pn_sasl_allowed_mechs(sasl, b"PLAIN")
        lib.pn_sasl_set_allow_insecure_mechs(sasl, True)

    def push(self, data: bytes, handle: Callable[[int, Any], None]) -> None:
        """Feed one received buffer, then hand every event of it to `handle(type, event)`.

        Raises:
            ConnectionError: the engine takes no more input, because the peer broke the protocol.
        """
        taken = _push(self.transport, data, len(data))
        if taken != len(data):
            rest = memoryview(data)
            while taken != len(rest):
                if taken < 0:
                    raise ConnectionError("the peer broke the connection")
                rest = rest[taken:]
                taken = _push(self.transport, ffi.from_buffer(rest), len(rest))
        self.events(handle)

    def events(self, handle: Callable[[int, Any], None]) -> None:
        """Hand every event that waits to `handle(type, event)`."""
        collector = self.collector
        while (event := _peek_event(collector)) != _NULL:
            handle(_event_type(event), event)
            _pop_event(collector)

    def output(self) -> bytes:
        """All bytes that are to be written now; empty if there are none."""
        transport = self.transport
        pieces = []
        while (pending := _pending(transport)) > 0:
            count = _peek(transport, self._output_address, min(pending, OUTPUT_BYTES))
            pieces.append(ffi.unpack(self._output_address, count))
            _pop(transport, count)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Free everything. No event or link of this engine may be used afterwards."""
        transport, connection, collector = self.transport, self.connection, self.collector
        lib.pn_transport_unbind(transport)
        lib.pn_decref(transport)
        lib.pn_connection_release(connection)
        lib.pn_decref(connection)
        while _peek_event(collector) != _NULL:
            _pop_event(collector)
        lib.pn_collector_release(collector)
        lib.pn_collector_free(collector)
