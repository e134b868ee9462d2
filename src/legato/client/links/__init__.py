"""The I/O thread's half: the transport, one channel for each session, and the ends of its links."""
