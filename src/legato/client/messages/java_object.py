"""Serialised Java objects: carried as bytes, named by their class, never built (Java Object Serialization 6)."""

from __future__ import annotations

from legato.client.messages.modified_utf8 import decode_modified_utf8
from legato.errors import MessageFormatError

CONTENT_TYPE = "application/x-java-serialized-object"

_MAGIC = b"\xac\xed\x00\x05"
_NULL = 0x70
_NAMED: dict[int, str] = {0x74: "java.lang.String", 0x7C: "java.lang.String", 0x76: "java.lang.Class"}
_WITH_CLASS = frozenset((0x73, 0x75, 0x7E))
"""An object, an array and an enumeration's constant: the description of their class follows."""
_CLASS_DESCRIPTION = 0x72


class JavaObject(bytes):
    """A Java object as its serialisation; sent on or sent again, it reaches Java unchanged."""

    __slots__ = ()

    @property
    def class_name(self) -> str | None:
        """The name of its class, as Java's `Class.getName()` spells it; None if the bytes do not begin with one."""
        if self[:4] != _MAGIC or len(self) < 6:
            return None
        what = self[4]
        if what in _WITH_CLASS and self[5] == _CLASS_DESCRIPTION:
            end = 8 + int.from_bytes(self[6:8], "big")
            if 8 < end <= len(self):
                try:
                    return decode_modified_utf8(self[8:end])
                except MessageFormatError:
                    return None
        return _NAMED.get(what)

    @property
    def is_null(self) -> bool:
        """Whether it is Java's null."""
        return self[:4] == _MAGIC and self[4:5] == bytes((_NULL,))
