"""Contents of a file that a user names, and that goes into one message."""

from __future__ import annotations

from pathlib import Path

from legato import limits
from legato.errors import ConfigError
from legato.sizes import size

PIECE_BYTES = 1 << 20


def content(file: Path, bytes_max: int = limits.MAX_MESSAGE_BYTES_DEFAULT) -> bytes:
    """All of a file; of a device or a pipe, which may not end, no more than a message may have.

    Raises:
        ConfigError: that has more.
        OSError: it cannot be read.
    """
    if file.is_file():
        return file.read_bytes()
    pieces: list[bytes] = []
    left = bytes_max
    with file.open("rb", buffering=0) as source:
        while piece := source.read(min(PIECE_BYTES, left + 1)):
            pieces.append(piece)
            left -= len(piece)
            if left < 0:
                raise ConfigError(
                    f"{file} does not end, or has more than a message may have ({size(bytes_max)}). To send that much, "
                    "save it as a file first."
                )
    return b"".join(pieces)
