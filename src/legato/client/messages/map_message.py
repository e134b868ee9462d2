"""Messages whose body is a map of names to primitive values (Jakarta Messaging 3.11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from legato.client.messages.message import Message
from legato.client.messages.values import FIELDS, Kind, Value, read_as, shown, stored, stored_as
from legato.errors import MessageFormatError

_FIELD = "The field"


class MapMessage(Message, MutableMapping[str, Value]):
    """A message whose body is a map; it is one itself: `message["price"] = 3.5`.

    A value keeps its type (`legato.client.messages.values`). The methods `get_*` convert it as the specification's
    table says and raise MessageFormatError for what is not in the table, a string that does not spell the number
    asked for and a number that is not there; `set_*` raise MessageFormatError for a value that does not fit the
    type and MessageNotWriteableError for a received message until `clear_body()`.

    A message is itself whatever it holds: it is true if it is empty, and equal to itself only.
    """

    def __init__(self, body: Mapping[str, Value] | None = None) -> None:
        self._body_value: dict[str, Any] = {}
        if body is not None:
            self.update(body)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, name: str) -> Value:
        value: Value = shown(self._read_body()[name])
        return value

    def __setitem__(self, name: str, value: Value) -> None:
        self._put(name, stored(value, FIELDS, _FIELD, name))

    def __delitem__(self, name: str) -> None:
        self._check_writable()
        del self._body_value[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read_body())

    def __len__(self) -> int:
        return len(self._read_body())

    @property
    def body(self) -> dict[str, Value]:
        """A copy of the map."""
        return dict(self.items())

    @body.setter
    def body(self, value: Mapping[str, Value]) -> None:
        self._check_writable()
        self._body_value = {}
        self.update(value)

    def item_exists(self, name: str) -> bool:
        """Whether the map has the name."""
        return name in self._read_body()

    def get_boolean(self, name: str) -> bool:
        """The value as a boolean; False if there is none."""
        return bool(self._as(name, Kind.BOOLEAN))

    def get_byte(self, name: str) -> int:
        """The value as an integer of 8 bits."""
        return int(self._as(name, Kind.BYTE))

    def get_short(self, name: str) -> int:
        """The value as an integer of 16 bits."""
        return int(self._as(name, Kind.SHORT))

    def get_char(self, name: str) -> str:
        """The value as a character."""
        return str(self._as(name, Kind.CHAR))

    def get_int(self, name: str) -> int:
        """The value as an integer of 32 bits."""
        return int(self._as(name, Kind.INT))

    def get_long(self, name: str) -> int:
        """The value as an integer of 64 bits."""
        return int(self._as(name, Kind.LONG))

    def get_float(self, name: str) -> float:
        """The value as a number of 32 bits."""
        return float(self._as(name, Kind.FLOAT))

    def get_double(self, name: str) -> float:
        """The value as a number of 64 bits."""
        return float(self._as(name, Kind.DOUBLE))

    def get_string(self, name: str) -> str | None:
        """The value as a string, spelled as Java does; None if there is none."""
        value: str | None = self._as(name, Kind.STRING)
        return value

    def get_bytes(self, name: str) -> bytes | None:
        """The value if it is bytes; None if there is none."""
        value: bytes | None = self._as(name, Kind.BYTES)
        return value

    def get_object(self, name: str) -> Value:
        """The value with the type that it has; None if there is none."""
        return self.get(name)

    def set_boolean(self, name: str, value: bool) -> None:
        """Set a boolean."""
        self._put(name, stored_as(value, Kind.BOOLEAN, _FIELD, name))

    def set_byte(self, name: str, value: int) -> None:
        """Set an integer of 8 bits."""
        self._put(name, stored_as(value, Kind.BYTE, _FIELD, name))

    def set_short(self, name: str, value: int) -> None:
        """Set an integer of 16 bits."""
        self._put(name, stored_as(value, Kind.SHORT, _FIELD, name))

    def set_char(self, name: str, value: str) -> None:
        """Set a character, of the 65536 that Java's `char` has."""
        self._put(name, stored_as(value, Kind.CHAR, _FIELD, name))

    def set_int(self, name: str, value: int) -> None:
        """Set an integer of 32 bits."""
        self._put(name, stored_as(value, Kind.INT, _FIELD, name))

    def set_long(self, name: str, value: int) -> None:
        """Set an integer of 64 bits."""
        self._put(name, stored_as(value, Kind.LONG, _FIELD, name))

    def set_float(self, name: str, value: float) -> None:
        """Set a number of 32 bits; the value is rounded to one."""
        self._put(name, stored_as(value, Kind.FLOAT, _FIELD, name))

    def set_double(self, name: str, value: float) -> None:
        """Set a number of 64 bits."""
        self._put(name, stored_as(value, Kind.DOUBLE, _FIELD, name))

    def set_string(self, name: str, value: str | None) -> None:
        """Set a string."""
        self._put(name, stored_as(value, Kind.STRING, _FIELD, name))

    def set_bytes(self, name: str, value: bytes | None) -> None:
        """Set bytes."""
        self._put(name, stored_as(value, Kind.BYTES, _FIELD, name))

    def set_object(self, name: str, value: Value) -> None:
        """Set a value with the type that it has."""
        self[name] = value

    def _as(self, name: str, kind: Kind) -> Any:
        return read_as(self._read_body().get(name), kind, FIELDS, f"The field {name}")

    def _put(self, name: str, value: Any) -> None:
        self._check_writable()
        if not isinstance(name, str) or not name:
            raise MessageFormatError(f"{name!r} cannot name a field of a map message; a name is a str, not empty.")
        self._body_value[name] = value

    def _empty_body(self) -> dict[str, Any]:
        return {}

    def _assignable_body(self) -> Any:
        return self.body or None
