"""What is done for the store beside committing: maintenance, checks, injected faults, the ledger's process."""
