"""Messages in bulk: between blocks on disk, AMQP's bytes and Arrow's columns, with no Python per message."""
