"""Proton's engine behind bytes in and events out: connections, sessions, links, SASL; no I/O."""
