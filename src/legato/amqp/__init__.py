"""AMQP 1.0 on Qpid Proton's engine, without I/O: bytes in, events out; calls in, bytes out. Knows nothing of queues."""
