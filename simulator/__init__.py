"""A deterministic simulator: the production broker and client in one thread, under a virtual clock and a bad network."""
