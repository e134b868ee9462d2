"""Names of hosts, and what is wrong with one that no resolver takes; numbers of ports."""

from __future__ import annotations

LABEL_CHARACTERS_MAX = 63
"""Between two dots of a name there are at most so many, as it is written in ASCII (RFC 1035, 2.3.4)."""

PORT_MAX = 65_535


def port_of(digits: str) -> int | None:
    """The number of a port, as it is written; None if that is no number. It may be more than `PORT_MAX`."""
    if not (digits.isascii() and digits.isdecimal()):
        return None
    # Python refuses to read a number of thousands of digits.
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= len(str(PORT_MAX)) else PORT_MAX + 1


def wrong_host(host: str) -> str:
    """What is wrong with the name of a host or its IP address: a half sentence; empty if a resolver takes it.

    Whether there is such a host is not asked. Python's resolver raises `UnicodeError` or `ValueError` for these, where
    an unknown host is an `OSError`.
    """
    if "\0" in host:
        return "there is a null byte in it"
    try:
        host.encode("idna")
    except UnicodeError as error:
        if "label" not in str(error):
            return "it has a character that no host's name has"
        return f"between two dots of a host's name there are 1 to {LABEL_CHARACTERS_MAX} characters"
    return ""
