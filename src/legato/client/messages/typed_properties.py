"""Typed getters and setters of properties, as in Jakarta Messaging's `Message`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from legato.client.messages.values import Kind

if TYPE_CHECKING:
    from legato.client.messages.properties import Properties, PropertyValue


class TypedProperties:
    """The methods of a message that set a property of one type and read it as another (Jakarta Messaging 3.5.4).

    All of them raise MessageFormatError for a conversion that the specification's table does not have, a string that
    does not spell the number asked for, a number that is not set, and a value that does not fit the type; the setters
    raise MessageNotWriteableError for a received message until `clear_properties()`.
    """

    if TYPE_CHECKING:

        @property
        def properties(self) -> Properties: ...

    def property_exists(self, name: str) -> bool:
        """Whether the property is set, be it to None."""
        return name in self.properties

    def get_boolean_property(self, name: str) -> bool:
        """The property as a boolean; False if it is not set."""
        result: bool = self.properties.read_as(name, Kind.BOOLEAN)
        return result

    def get_byte_property(self, name: str) -> int:
        """The property as an integer of 8 bits."""
        return self._number(name, Kind.BYTE)

    def get_short_property(self, name: str) -> int:
        """The property as an integer of 16 bits."""
        return self._number(name, Kind.SHORT)

    def get_int_property(self, name: str) -> int:
        """The property as an integer of 32 bits."""
        return self._number(name, Kind.INT)

    def get_long_property(self, name: str) -> int:
        """The property as an integer of 64 bits."""
        return self._number(name, Kind.LONG)

    def get_float_property(self, name: str) -> float:
        """The property as a number of 32 bits."""
        result: float = self.properties.read_as(name, Kind.FLOAT)
        return result

    def get_double_property(self, name: str) -> float:
        """The property as a number of 64 bits."""
        result: float = self.properties.read_as(name, Kind.DOUBLE)
        return result

    def get_string_property(self, name: str) -> str | None:
        """The property as a string, spelled as Java does; None if it is not set."""
        result: str | None = self.properties.read_as(name, Kind.STRING)
        return result

    def get_object_property(self, name: str) -> PropertyValue:
        """The property with the type that it has; None if it is not set."""
        return self.properties.get(name)

    def set_boolean_property(self, name: str, value: bool) -> None:
        """Set a boolean."""
        self.properties.set_as(name, value, Kind.BOOLEAN)

    def set_byte_property(self, name: str, value: int) -> None:
        """Set an integer of 8 bits."""
        self.properties.set_as(name, value, Kind.BYTE)

    def set_short_property(self, name: str, value: int) -> None:
        """Set an integer of 16 bits."""
        self.properties.set_as(name, value, Kind.SHORT)

    def set_int_property(self, name: str, value: int) -> None:
        """Set an integer of 32 bits."""
        self.properties.set_as(name, value, Kind.INT)

    def set_long_property(self, name: str, value: int) -> None:
        """Set an integer of 64 bits."""
        self.properties.set_as(name, value, Kind.LONG)

    def set_float_property(self, name: str, value: float) -> None:
        """Set a number of 32 bits; the value is rounded to one."""
        self.properties.set_as(name, value, Kind.FLOAT)

    def set_double_property(self, name: str, value: float) -> None:
        """Set a number of 64 bits."""
        self.properties.set_as(name, value, Kind.DOUBLE)

    def set_string_property(self, name: str, value: str | None) -> None:
        """Set a string."""
        self.properties.set_as(name, value, Kind.STRING)

    def set_object_property(self, name: str, value: PropertyValue) -> None:
        """Set a value with the type that it has."""
        self.properties[name] = value

    set_property = set_object_property

    def _number(self, name: str, kind: Kind) -> int:
        result: int = self.properties.read_as(name, kind)
        return result
