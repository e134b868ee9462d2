"""Proton's engine, wrapped: bytes in, events out; connections, sessions, links, SASL; no I/O."""

try:
    import cproton  # noqa: F401
except ImportError as missing:
    raise ImportError(
        "Legato's AMQP engine is not installed: pip install python-qpid-proton. Where there is no wheel of it, that "
        "needs a C compiler and the headers of Python and OpenSSL; `make wheels` in Legato's sources builds one."
    ) from missing
