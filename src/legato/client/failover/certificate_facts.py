"""Facts of a certificate for an error: whose it is, who issued it, for how long it holds, for which names. Pure.

The standard library tells them of certificates that it trusts only.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime

import msgspec

_COMMON_NAME, _ORGANIZATION = b"\x55\x04\x03", b"\x55\x04\x0a"
_ALTERNATIVE_NAMES = b"\x55\x1d\x11"
_VERSION, _EXTENSIONS, _DNS_NAME, _ADDRESS = 0xA0, 0xA3, 0x82, 0x87
_OCTETS, _UTC_TIME = 0x04, 0x17

Node = tuple[int, bytes]
"""A tag of DER, and what it holds."""


class CertificateFacts(msgspec.Struct, frozen=True):
    """What an error says of a certificate."""

    subject: str
    issuer: str
    begins: datetime
    ends: datetime
    names: tuple[str, ...]
    """The names and addresses that it is for."""


def read_certificate(der: bytes) -> CertificateFacts:
    """The facts of a certificate.

    Raises:
        ValueError: the bytes are none.
    """
    try:
        [(_, certificate)] = _nodes(der)
        fields = _nodes(_nodes(certificate)[0][1])
        if fields[0][0] == _VERSION:
            fields.pop(0)
        _serial, _algorithm, issuer, validity, subject = fields[:5]
        begins, ends = map(_time, _nodes(validity[1]))
        extensions = [node for node in fields if node[0] == _EXTENSIONS]
        names = _names(_nodes(extensions[0][1])[0][1]) if extensions else ()
        return CertificateFacts(_name(subject[1]), _name(issuer[1]), begins, ends, names)
    except (IndexError, StopIteration):
        raise ValueError("These bytes are no certificate.") from None


def _nodes(data: bytes) -> list[Node]:
    found: list[Node] = []
    at = 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        found.append((tag, data[at : at + size]))
        at += size
    return found


def _name(data: bytes) -> str:
    texts: dict[bytes, str] = {}
    for _, group in _nodes(data):
        for _, pair in _nodes(group):
            kind, text = _nodes(pair)
            texts[kind[1]] = text[1].decode(errors="replace")
    known = (("CN", texts.get(_COMMON_NAME)), ("O", texts.get(_ORGANIZATION)))
    return ", ".join(f"{name}={text}" for name, text in known if text) or "without a name"


def _time(node: Node) -> datetime:
    tag, text = node
    # The years of the short form lie between 1950 and 2049 (RFC 5280 4.1.2.5.1).
    century = ("20" if text[:2] < b"50" else "19") if tag == _UTC_TIME else ""
    return datetime.strptime(f"{century}{text.decode()}", "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _names(extensions: bytes) -> tuple[str, ...]:
    for _, extension in _nodes(extensions):
        fields = _nodes(extension)
        if fields[0][1] == _ALTERNATIVE_NAMES:
            [(_, names)] = _nodes(next(value for tag, value in fields if tag == _OCTETS))
            return tuple(_alternative(node) for node in _nodes(names) if node[0] in (_DNS_NAME, _ADDRESS))
    return ()


def _alternative(node: Node) -> str:
    tag, value = node
    return value.decode(errors="replace") if tag == _DNS_NAME else str(ipaddress.ip_address(value))
