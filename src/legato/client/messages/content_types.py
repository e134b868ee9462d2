"""The class of a foreign message, by its content type (as in Apache Qpid JMS)."""

from __future__ import annotations

_TEXTUAL = {"xml", "json", "javascript", "ecmascript", "xml-dtd"}
_TEXTUAL_SUFFIXES = ("+xml", "+json")


def charset_of(content_type: str) -> str | None:
    """The charset of a content type that is text; None if it is none, or in a charset that Python does not know."""
    kind, _, parameters = content_type.lower().partition(";")
    kind, slash, subtype = kind.strip().partition("/")
    subtype = subtype.strip()
    if not slash or not subtype:
        return None
    if kind.strip() != "text" and not (
        kind.strip() == "application" and (subtype in _TEXTUAL or subtype.endswith(_TEXTUAL_SUFFIXES))
    ):
        return None
    charset = "utf-8"
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset":
            charset = value.strip().strip('"')
            break
    try:
        "a".encode(charset)
    except (LookupError, ValueError):
        return None
    return charset
