"""Attacks on a running broker, each with a good client beside it: `python -m tests.attacks`."""
