"""A deterministic simulator: production broker and client in one thread, in virtual time, on a bad network."""
