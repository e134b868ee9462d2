"""The console's pages: what each shows, and what its forms do."""
