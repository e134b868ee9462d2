"""Java's modified UTF-8, the encoding of strings in `writeUTF` and in serialised objects."""

from __future__ import annotations

from legato.errors import MessageFormatError

_BYTES_MAX = 0xFFFF
_FOUR_BYTE_LEAD = 0xF0


def encode_modified_utf8(text: str) -> bytes:
    """`text` as UTF-8 in which NUL is two bytes, and a character above U+FFFF the two halves of its surrogate pair.

    Raises:
        MessageFormatError: it is no string, or has more than 65535 bytes.
    """
    if not isinstance(text, str):
        raise MessageFormatError(f"{text!r} is no str.")
    if not text.isascii():
        units = memoryview(text.encode("utf-16", "surrogatepass")).cast("H")[1:]
        text = "".join(map(chr, units))
    raw = text.encode("utf-8", "surrogatepass").replace(b"\x00", b"\xc0\x80")
    if len(raw) > _BYTES_MAX:
        raise MessageFormatError(f"The string has {len(raw)} bytes in Java's modified UTF-8; at most 65535 fit.")
    return raw


def decode_modified_utf8(raw: bytes) -> str:
    """The string that `raw` encodes.

    Raises:
        MessageFormatError: the bytes encode none.
    """
    try:
        if raw and max(raw) >= _FOUR_BYTE_LEAD:
            raise ValueError("a character of four bytes")
        text = raw.replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    except ValueError as error:
        raise MessageFormatError(f"The bytes are no string in Java's modified UTF-8: {error}.", linked=error) from error
