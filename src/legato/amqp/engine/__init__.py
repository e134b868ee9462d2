"""Proton's engine, wrapped: bytes in, events out; connections, sessions, links, SASL; no I/O."""

try:
    from cproton import lib
except ImportError as missing:
    raise ImportError(
        "Legato's AMQP engine is not installed: pip install python-qpid-proton. Where there is no wheel of it, that "
        "needs a C compiler and the headers of Python and OpenSSL; `make wheels` in Legato's sources builds one."
    ) from missing

ENGINE_VERSION = (0, 40)
"""The engine's version that pyproject.toml asks for; why only this one: docs/decisions/0078-wheels.md."""

_found = (lib.PN_VERSION_MAJOR, lib.PN_VERSION_MINOR)
if _found != ENGINE_VERSION:
    # Another package, or a distribution, may have brought it; with 0.41 transactions would lose their ids in silence.
    raise ImportError(
        f"Legato needs version 0.40 of its AMQP engine, not {_found[0]}.{_found[1]}: "
        "pip install 'python-qpid-proton>=0.40,<0.41'."
    )
