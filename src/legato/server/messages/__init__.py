"""Message path: events to commands, commands to commits, effects to sends."""
