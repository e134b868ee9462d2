"""One client's connection: its socket, who may log in, what it is told when it opens."""
