"""Groups of brokers: which group serves which address, and on which machines its members run. Pure."""
