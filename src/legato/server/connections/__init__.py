"""Client connections: sockets, logins, AMQP opens."""
