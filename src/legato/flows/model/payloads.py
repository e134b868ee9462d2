"""Payloads: requests, replies and states as JSON, checked against their classes.

What msgspec knows goes straight to it; models of pydantic, and what has one in it, as the client does it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from legato.client.messages.json_text import is_class, is_model, json_text, read_json
from legato.errors import MessageFormatError, StateVersionError
from legato.flows.model.envelope import Saved

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes the fields of a state of one version those of the next."""


def to_json(value: object) -> msgspec.Raw:
    """`value` as JSON, at the time of the call: what becomes of it later does not count (CONTRACT D23).

    Raises:
        MessageFormatError: it cannot be.
    """
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(value))
    return msgspec.Raw(json_text(value).encode())


def from_json(data: msgspec.Raw, kind: Any) -> Any:
    """An object of `kind` from JSON.

    Raises:
        MessageFormatError: the JSON is not of this kind.
    """
    try:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            return msgspec.json.decode(data, type=kind)
        return read_json(bytes(data), kind)
    except RecursionError as error:
        raise MessageFormatError(f"The JSON is nested too deep: {error}.", linked=error) from error


def load_state(saved: Saved, kind: Any, version: int, upcasters: Mapping[int, Upcaster], owner: str) -> Any:
    """The state that an endpoint finds; a new one if none was saved.

    Args:
        version: of the class today.
        upcasters: by the version that they start from.
        owner: the endpoint, for messages.

    Raises:
        StateVersionError: it was written by a later version, or no upcaster leads on from an earlier one.
        MessageFormatError: its fields are not those of the class.
    """
    if kind is None:
        return None
    if bytes(saved.data) == b"null":
        return kind()
    if saved.version == version:
        return from_json(saved.data, kind)
    if saved.version > version:
        raise StateVersionError(
            f"{owner}: the state is of version {saved.version}, this program knows {version}; start a newer one."
        )
    fields = from_json(saved.data, Any)
    for number in range(saved.version, version):
        if number not in upcasters:
            raise StateVersionError(
                f"{owner}: the state is of version {saved.version}, the class of {version}, and no upcaster leads "
                f"from {number} to {number + 1}; add one (`upcasters={{{number}: ...}}`)."
            )
        fields = upcasters[number](fields)
    return from_json(to_json(fields), kind)


def check_kind(kind: Any, what: str) -> None:
    """Refuse a class that JSON cannot carry, when it is declared and not when the first message comes.

    Raises:
        TypeError: it is none that msgspec knows, or a state without defaults for all of its fields.
    """
    try:
        msgspec.json.Decoder(kind)
    except (TypeError, msgspec.MsgspecError) as error:
        raise TypeError(f"{what}: {error}") from error


def check_state(kind: Any, what: str) -> None:
    """As `check_kind`, and it can be made without arguments: an endpoint's first stage finds a new one.

    Raises:
        TypeError: it cannot.
    """
    check_kind(kind, what)
    make: Callable[[], object] = kind
    try:
        make()
    except (TypeError, ValueError) as error:
        if is_class(kind) and is_model(kind):
            raise TypeError(f"{what}: every field of a state needs a default ({error}).") from error
        raise TypeError(
            f"{what}: {kind} cannot be made without arguments, and an endpoint begins with a new state; name a class "
            "that has a default for each field."
        ) from error
