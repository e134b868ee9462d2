"""The command `legato`: one file per command."""
