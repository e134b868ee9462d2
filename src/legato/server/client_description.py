"""Description of a client, from the properties of its open: for the log and for administrators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from legato.quoting import quoted

CHARACTERS_MAX = 100
"""Of each thing that a client says of itself."""


class ClientDescription(msgspec.Struct, frozen=True):
    """What a client says of itself; empty or 0 where it says nothing."""

    product: str = ""
    version: str = ""
    hostname: str = ""
    pid: int = 0

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> ClientDescription:
        """From the properties of an open; what is no text, or no number, is left out."""
        pid = properties.get("pid")
        return cls(
            _text(properties.get("product")),
            _text(properties.get("version")),
            _text(properties.get("hostname")),
            int(pid) if isinstance(pid, int) and 0 < pid < 1 << 32 else 0,
        )

    def __str__(self) -> str:
        words = []
        if self.hostname:
            words.append(f"host {quoted(self.hostname)}")
        if self.pid:
            words.append(f"process {self.pid}")
        if self.product:
            words.append(" ".join(quoted(word) for word in (self.product, self.version) if word))
        return ", ".join(words)


def _text(value: object) -> str:
    return str(value)[:CHARACTERS_MAX] if isinstance(value, str) else ""
