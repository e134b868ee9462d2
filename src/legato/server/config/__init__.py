"""Settings: the file, its addresses, and where brokers are."""
