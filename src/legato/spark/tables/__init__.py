"""Bronze, silver and gold: tables that grow with a ledger, portion by portion."""
