"""Finding a broker, and finding it again: URIs, attempts, back-off, failover contracts."""
