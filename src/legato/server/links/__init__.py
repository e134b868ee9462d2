"""AMQP links: what each is for, how it attaches and ends, and the credit of producers."""
