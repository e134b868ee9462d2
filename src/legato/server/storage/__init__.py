"""Work on the store besides commits: maintenance, checks, injected faults, the ledger's process."""
