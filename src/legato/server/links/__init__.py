"""AMQP links: roles, attaching, closing, and the credit of producers."""
