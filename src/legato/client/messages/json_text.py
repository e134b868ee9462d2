"""JSON: objects as text, and text as objects of a type. Pure.

`legato.client` and `legato.faststream` have the same form on the wire: a text body whose content type is
`application/json`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import GenericAlias, UnionType
from typing import Any, ClassVar, Protocol, TypeAlias, get_origin, is_typeddict

import msgspec

from legato.errors import JMSError, MessageFormatError
from legato.quoting import quoted

JSON_TYPE = "application/json"
"""The content type of JSON."""
SHOWN_CHARACTERS = 40
"""Of a text that is no JSON, in an error."""


class Dataclass(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class PydanticModel(Protocol):
    """A model of pydantic, which need not be installed."""

    @property
    def model_fields_set(self) -> set[str]: ...

    def model_dump_json(self) -> str: ...


JsonBody: TypeAlias = Mapping[str, Any] | list[Any] | tuple[Any, ...] | msgspec.Struct | Dataclass | PydanticModel
"""What is sent as JSON."""


def is_text(content_type: str | None) -> bool:
    """Whether a body of this content type is text."""
    return content_type is not None and content_type.startswith((JSON_TYPE, "text/"))


def is_json(content_type: str | None) -> bool:
    """Whether a body of this content type is JSON."""
    return content_type is not None and content_type.partition(";")[0].strip().lower() == JSON_TYPE


def is_class(kind: object) -> bool:
    """Whether `isinstance()` takes it."""
    return isinstance(kind, type) and not isinstance(kind, GenericAlias) and not is_typeddict(kind)


def is_model(kind: Any) -> bool:
    """Whether it is a type of structured data, which a body can only be if it is read as JSON."""
    if not is_class(kind):
        return is_typeddict(kind) or isinstance(kind, UnionType) or get_origin(kind) is not None
    return (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__pydantic_validator__")
        or hasattr(kind, "__attrs_attrs__")
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def name_of(kind: Any) -> str:
    """A type as a reader of its module knows it."""
    return str(kind.__name__) if is_class(kind) else str(kind)


def json_text(value: Any) -> str:
    """An object as JSON: what msgspec can encode, and models of pydantic.

    Raises:
        MessageFormatError: it cannot be said in JSON.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_encode_other).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
        reason = _reason(error)
        raise MessageFormatError(
            f"The {name_of(type(value))} cannot be sent as JSON: {reason}.", linked=error
        ) from error


def read_json(text: str | bytes, kind: Any = Any) -> Any:
    """An object of type `kind` from JSON.

    Raises:
        MessageFormatError: the text is not JSON, or does not fit the type.
        JMSError: nothing of that type can be read from JSON.
    """
    validator = getattr(kind, "__pydantic_validator__", None)
    try:
        if validator is not None:
            return validator.validate_json(text)
        return msgspec.json.decode(text, type=kind, dec_hook=_decode_other)
    except ValueError as error:
        raise _unfit(kind, error, text) from error
    except (TypeError, NameError, NotImplementedError) as error:
        raise _unreadable(kind, error) from error


def convert(value: Any, kind: Any) -> Any:
    """An object of type `kind` from the numbers, texts, lists and maps of another body than JSON.

    Raises:
        MessageFormatError: they do not fit the type.
        JMSError: nothing of that type can be read from a body.
    """
    if hasattr(kind, "__pydantic_validator__"):
        return read_json(json_text(value), kind)
    try:
        return msgspec.convert(value, kind, dec_hook=_decode_other)
    except ValueError as error:
        raise _unfit(kind, error) from error
    except (TypeError, NameError, NotImplementedError) as error:
        raise _unreadable(kind, error) from error


def _encode_other(value: Any) -> Any:
    if hasattr(value, "__pydantic_validator__") and hasattr(value, "model_dump_json"):
        return msgspec.Raw(value.model_dump_json(by_alias=True).encode())
    raise NotImplementedError(f"objects of type {name_of(type(value))} are not supported")


def _decode_other(kind: Any, value: Any) -> Any:
    if hasattr(kind, "__pydantic_validator__"):
        try:
            return kind.__pydantic_validator__.validate_json(msgspec.json.encode(value))
        except ValueError as error:
            raise ValueError(_reason(error)) from error  # msgspec adds the place
    raise NotImplementedError(f"objects of type {name_of(kind)} are not supported")


def _unfit(kind: Any, error: Exception, text: str | bytes = "") -> MessageFormatError:
    wanted = "JSON" if kind is Any else f"JSON of type {name_of(kind)}"
    # Of text that is no JSON at all, what a parser met first says little: the text does.
    reason = f"it is the text {quoted(text, SHOWN_CHARACTERS)}" if _is_plain(text) else _reason(error)
    return MessageFormatError(f"The message's body is not {wanted}: {reason}.", linked=error)


def _is_plain(text: str | bytes) -> bool:
    return isinstance(text, str) and text.lstrip()[:1].isalpha() and text.split()[0] not in ("true", "false", "null")


def _unreadable(kind: Any, error: Exception) -> JMSError:
    return JMSError(f"No {name_of(kind)} can be read from a message's body: {_reason(error)}.", linked=error)


def _reason(error: Exception) -> str:
    """Why, in a line: pydantic has many."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return str(error).rstrip(".")
    found = errors(include_url=False, include_input=False)
    return "; ".join(".".join(["$", *map(str, each["loc"])]) + ": " + str(each["msg"]) for each in found)
