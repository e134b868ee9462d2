"""Proton's engine, wrapped: bytes in, events out; connections, sessions, links, SASL; no I/O."""
