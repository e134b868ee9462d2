"""Connections to the primary, now and after a failover: URIs, attempts, back-off, failover contracts."""
