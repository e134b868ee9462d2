"""A codec for AMQP's types and message sections in plain Python; the engine carries messages without reading them."""
