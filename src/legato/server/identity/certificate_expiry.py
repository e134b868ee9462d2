"""Validity of the broker's certificate: when it ends, and what the log says of one that clients refuse or soon will."""

from __future__ import annotations

import datetime
import re
import ssl
import time
from pathlib import Path

_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VERSION_TAG, _UTC_TIME_TAG = 0xA0, 0x17
SOON_S = 14 * 86_400.0


def expires_s(certificate: str) -> float | None:
    """When the first certificate of a PEM file ends, seconds since 1970; None if the file has none that can be read."""
    validity = _validity_of(certificate)
    return None if validity is None else validity[1]


def expiry_warnings(certificate: str, now_s: float | None = None) -> list[str]:
    """What the log is to say of a certificate that is not valid yet, has expired, or expires within two weeks."""
    validity = _validity_of(certificate) if certificate else None
    if validity is None:
        return []
    begin_s, end_s = validity
    now_s = time.time() if now_s is None else now_s
    if now_s < begin_s:
        return [
            f"tls.certificate {certificate} is not valid before {_date(begin_s)}, and this machine's clock says "
            f"{_date(now_s)}: clients refuse it until then; set the clock if it is wrong"
        ]
    left_s = end_s - now_s
    if left_s >= SOON_S:
        return []
    when = _date(end_s)
    then = "replace it, and have the broker read it with legato reload or SIGHUP"
    if left_s <= 0:
        return [f"tls.certificate {certificate} expired on {when}: clients refuse it; {then}"]
    return [f"tls.certificate {certificate} expires on {when}: {then}"]


def _date(time_s: float) -> str:
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _validity_of(certificate: str) -> tuple[float, float] | None:
    """Since when and until when the first certificate of a PEM file is valid; None if it has none that can be read."""
    try:
        block = _BLOCK.search(Path(certificate).read_text(encoding="ascii", errors="replace"))
        return None if block is None else _validity_s(ssl.PEM_cert_to_DER_cert(block[0]))
    except (OSError, ValueError, IndexError):
        return None


def _validity_s(der: bytes) -> tuple[float, float]:
    """RFC 5280, 4.1: `validity` is the fourth element of what is signed, or the fifth if its version is written."""
    _, start, _ = _element(der, 0)
    _, at, _ = _element(der, start)
    for _ in range(4 if der[at] == _VERSION_TAG else 3):
        at = _element(der, at)[2]
    _, not_before, _ = _element(der, at)
    begin_s, not_after = _time(der, not_before)
    return begin_s, _time(der, not_after)[0]


def _time(der: bytes, at: int) -> tuple[float, int]:
    """The time in the element at `at`, and where the next one is."""
    tag, start, end = _element(der, at)
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME_TAG else "%Y%m%d%H%M%SZ"
    read = datetime.datetime.strptime(der[start:end].decode("ascii"), form)
    return read.replace(tzinfo=datetime.UTC).timestamp(), end


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag, beginning and end of what the element at `at` holds."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[at + 2 : start], "big")
    return der[at], start, start + length
