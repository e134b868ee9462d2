"""Conversion between messages of Jakarta Messaging and AMQP, and of AMQP's conditions to errors."""
