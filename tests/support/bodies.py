"""Bodies for tests of the core: text that begins with the fields that the core reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from legato.core.traits import FlowCall


class TextBodies:
    """`group=G;` or `group=G!;` (closes it) at the front is the group, `{...};` the properties, the rest is free."""

    def group(self, body: bytes) -> tuple[str, bool]:
        if not body.startswith(b"group="):
            return "", False
        group = body[6 : body.index(b";")].decode()
        return group.rstrip("!"), group.endswith("!")

    def matcher(self, selector: str) -> Callable[[bytes], bool]:
        wanted = selector.encode()
        return lambda body: wanted in body

    def annotate(self, body: bytes, properties: Mapping[str, str | int]) -> bytes:
        known = self._properties(body) | dict(properties)
        rest = body.partition(b"};")[2] if body.startswith(b"{") else body
        return json.dumps(known, separators=(",", ":")).encode().replace(b"};", b"} ;") + b";" + rest

    def read(self, body: bytes, name: str) -> object:
        return self._properties(body).get(name)

    def flows(self, body: bytes) -> tuple[FlowCall, ...]:
        flow = self._properties(body).get("flow")
        return ((str(flow), "trace", "stage", "send", 1, 1),) if flow else ()

    def _properties(self, body: bytes) -> dict[str, str | int]:
        if not body.startswith(b"{"):
            return {}
        properties: dict[str, str | int] = json.loads(body.partition(b"};")[0] + b"}")
        return properties
