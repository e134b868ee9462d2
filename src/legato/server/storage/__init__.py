"""Work on the store besides commits: maintenance, checks, fault injection, the ledger process."""
