"""The checks of an audit: what must not be in a ledger. See `catalogue.py` for all of them."""
