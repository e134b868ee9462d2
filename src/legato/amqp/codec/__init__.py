"""AMQP's types and the sections of messages in plain Python: the engine carries messages and does not read them."""
