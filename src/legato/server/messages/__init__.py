"""Messages in and out: from events to commands, to commits, to effects."""
