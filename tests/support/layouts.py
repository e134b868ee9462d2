"""All encodings of one message that AMQP permits: descriptors, widths of values, absent fields, sections."""

from __future__ import annotations

import struct
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from legato.amqp.codec.header import DATA, FOOTER, SEQUENCE, VALUE
from legato.amqp.codec.types import Symbol, Timestamp, UInt, ULong

_NAMES = {
    0x70: b"amqp:header:list",
    0x71: b"amqp:delivery-annotations:map",
    0x72: b"amqp:message-annotations:map",
    0x73: b"amqp:properties:list",
    0x74: b"amqp:application-properties:map",
    DATA: b"amqp:data:binary",
    SEQUENCE: b"amqp:amqp-sequence:list",
    VALUE: b"amqp:amqp-value:*",
    FOOTER: b"amqp:footer:map",
}
_TEXTS = st.text(max_size=4) | st.text("ab", min_size=250, max_size=260)
_VALUES = _TEXTS | st.sampled_from(["red", True, 3, 2.5, None])
_IDS = st.none() | _TEXTS | st.integers(0, 300).map(ULong) | st.uuids() | st.binary(max_size=3)


class Content(NamedTuple):
    """What a message says, however it is written."""

    durable: bool
    priority: int
    ttl_ms: int
    annotations: dict[Symbol, Any] | None
    properties: dict[int, Any]
    """By the number of the field; what is not there is null."""
    items: dict[str, Any] | None
    """The application properties."""
    body: int
    """The code of its section; 0 for none."""
    footer: bool


PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        0: _IDS,
        1: st.binary(max_size=3),
        2: _TEXTS,
        3: st.sampled_from(["red", "blue", ""]),
        5: _IDS | st.sampled_from(["red", "blue"]),
        8: st.integers(0, 2**42).map(Timestamp),
        9: st.integers(0, 2**42).map(Timestamp),
        10: st.sampled_from(["red", "blue"]),
        11: st.sampled_from([0, 5, 2**31, 2**32 - 1]).map(UInt),
    },
)
CONTENTS = st.builds(
    Content,
    durable=st.booleans(),
    priority=st.integers(0, 9),
    ttl_ms=st.sampled_from([0, 5, 5000]),
    annotations=st.none()
    | st.dictionaries(
        st.sampled_from(["x-opt-delivery-time", "_AMQ_DUPL_ID", "a"]).map(Symbol), st.integers(1, 2**41), max_size=2
    ),
    properties=PROPERTIES,
    items=st.none()
    | st.fixed_dictionaries(
        {}, optional={"colour": _VALUES, "weight": _VALUES, "_AMQ_DUPL_ID": _TEXTS, "JMS_LEGATO_CAUSE": _VALUES}
    ),
    body=st.sampled_from([0, DATA, SEQUENCE, VALUE]),
    footer=st.booleans(),
)


def plainly(content: Content) -> bytes:
    """The message as most clients write it."""
    return _Writer(None).message(content)


@st.composite
def layouts(draw: st.DrawFn, content: Content) -> bytes:
    """The message written in any way."""
    return _Writer(Random(draw(st.integers(0, 2**32)))).message(content)


class _Writer:
    """`chance` chooses between the ways; without it all is written as usual."""

    def __init__(self, chance: Random | None) -> None:
        self._chance = chance

    def one_of(self, *ways: bytes) -> bytes:
        """One of several ways to write the same; the first is the usual one."""
        return ways[0] if self._chance is None else self._chance.choice(ways)

    def maybe(self) -> bool:
        return self._chance is not None and self._chance.random() < 0.5

    def message(self, content: Content) -> bytes:
        header = [content.durable, (0x50, content.priority), UInt(content.ttl_ms) if content.ttl_ms else None]
        parts = [self.section(0x70, self.list_of(self.field(value) for value in header))]
        if content.annotations is not None or self.maybe():
            parts.append(self.section(0x72, self.map_of(content.annotations or {})))
        if content.properties or self.maybe():
            last = max(content.properties, default=-1)
            fields = [content.properties.get(number) for number in range(last + 1)]
            parts.append(self.section(0x73, self.list_of(self.field(value) for value in fields)))
        if content.items is not None:
            parts.append(self.section(0x74, self.map_of(content.items)))
        if content.body == DATA:
            parts.append(self.section(DATA, self.sized(0xA0, b"red")))
        elif content.body == SEQUENCE:
            parts.append(self.section(SEQUENCE, self.compound(0xC0, [self.value("red")])))
        elif content.body == VALUE:
            parts.append(self.section(VALUE, self.value("red")))
        if content.footer:
            parts.append(self.section(FOOTER, self.map_of({Symbol("f"): 1})))
        return b"".join(parts)

    def section(self, code: int, value: bytes) -> bytes:
        name = _NAMES[code]
        return (
            self.one_of(
                bytes((0, 0x53, code)),
                b"\x00\x80" + code.to_bytes(8, "big"),
                bytes((0, 0xA3, len(name))) + name,
                b"\x00\xb3" + len(name).to_bytes(4, "big") + name,
            )
            + value
        )

    def field(self, value: Any) -> bytes:
        return bytes(value) if isinstance(value, tuple) else self.value(value)

    def value(self, value: Any) -> bytes:
        if value is None:
            return b"\x40"
        if isinstance(value, bool):
            return self.one_of(b"\x41" if value else b"\x42", bytes((0x56, value)))
        if isinstance(value, Symbol):
            return self.sized(0xA3, value.encode())
        if isinstance(value, str):
            return self.sized(0xA1, value.encode())
        if isinstance(value, bytes):
            return self.sized(0xA0, value)
        if isinstance(value, Timestamp):
            return b"\x83" + value.to_bytes(8, "big")
        if isinstance(value, UInt):
            return self.number(value, 0x43, 0x52, 0x70, 4)
        if isinstance(value, ULong):
            return self.number(value, 0x44, 0x53, 0x80, 8)
        if isinstance(value, int):
            wide = b"\x81" + value.to_bytes(8, "big", signed=True)
            return self.one_of(wide, b"\x55" + value.to_bytes(1, "big")) if 0 <= value < 128 else wide
        if isinstance(value, float):
            return b"\x82" + struct.pack(">d", value)
        return bytes(b"\x98" + value.bytes)

    def number(self, value: int, zero: int, short: int, long: int, width: int) -> bytes:
        ways = [bytes((long,)) + value.to_bytes(width, "big")]
        if value < 256:
            ways.insert(0, bytes((short, value)))
        if not value:
            ways.insert(0, bytes((zero,)))
        return self.one_of(*ways)

    def sized(self, short: int, content: bytes) -> bytes:
        wide = bytes((short | 0x10,)) + len(content).to_bytes(4, "big") + content
        return wide if len(content) > 255 else self.one_of(bytes((short, len(content))) + content, wide)

    def list_of(self, values: Any) -> bytes:
        items = list(values)
        while items and items[-1] == b"\x40":
            items.pop()
        if self._chance is not None:
            items += [b"\x40"] * self._chance.randint(0, max(0, 3 - len(items)))
        if not items and not self.maybe():
            return b"\x45"
        return self.compound(0xC0, items)

    def map_of(self, items: dict[Any, Any]) -> bytes:
        return self.compound(0xC1, [self.value(part) for item in items.items() for part in item])

    def compound(self, short: int, items: list[bytes]) -> bytes:
        content = b"".join(items)
        wide = b"".join(
            (bytes((short | 0x10,)), (len(content) + 4).to_bytes(4, "big"), len(items).to_bytes(4, "big"), content)
        )
        if len(content) > 254:
            return wide
        return self.one_of(bytes((short, len(content) + 1, len(items))) + content, wide)
