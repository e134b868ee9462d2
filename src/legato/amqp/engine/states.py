"""Conversion between the engine's dispositions and the plain values of `outcomes`."""

from __future__ import annotations

from typing import Any

from cproton import lib

from legato.amqp.codec.types import Described, Symbol, ULong
from legato.amqp.engine.outcomes import (
    ACCEPTED,
    RECEIVED,
    RELEASED,
    Accepted,
    Declared,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    Transactional,
)
from legato.amqp.engine.pndata import c_text, decode_error, put, read, write_map
from legato.amqp.engine.state_cache import TransactionalStates, encode_fields, write_fields
from legato.amqp.names import DUPLICATE, EXCEPTION

DELIVERY_TAG = "delivery-tag"
RECEIVED_STATE = 0x23
ACCEPTED_STATE = 0x24
REJECTED_STATE = 0x25
RELEASED_STATE = 0x26
MODIFIED_STATE = 0x27
DECLARED_STATE = 0x33
TRANSACTIONAL_STATE = 0x34

_STATES_BY_NAME = {
    "amqp:received:list": RECEIVED_STATE,
    "amqp:accepted:list": ACCEPTED_STATE,
    "amqp:rejected:list": REJECTED_STATE,
    "amqp:released:list": RELEASED_STATE,
    "amqp:modified:list": MODIFIED_STATE,
}


def read_outcome(delivery: Any, state: int) -> Outcome | None:
    """The peer's state of `delivery`; None if there is none, or one that AMQP does not know.

    Raises:
        ProtocolError: the state's fields cannot be decoded.
    """
    if state == ACCEPTED_STATE:
        return ACCEPTED
    if state == RELEASED_STATE:
        return RELEASED
    if state == RECEIVED_STATE:
        return RECEIVED
    if not state:
        return None
    disposition = lib.pn_delivery_remote(delivery)
    if state == REJECTED_STATE:
        condition = lib.pn_disposition_condition(disposition)
        info = read(lib.pn_condition_info(condition))
        return Rejected(
            c_text(lib.pn_condition_get_name(condition)) or "",
            c_text(lib.pn_condition_get_description(condition)) or "",
            _info(info),
            _tag(info),
        )
    if state == MODIFIED_STATE:
        annotations = read(lib.pn_disposition_annotations(disposition))
        return Modified(
            lib.pn_disposition_is_failed(disposition),
            lib.pn_disposition_is_undeliverable(disposition),
            _exception(annotations),
            _is_duplicate(annotations),
        )
    if state == TRANSACTIONAL_STATE:
        return _transactional.read(lib.pn_disposition_data(disposition), _decode_transactional)
    if state == DECLARED_STATE:
        return Declared(_transaction_fields(lib.pn_disposition_data(disposition))[0])
    return None


_transactional = TransactionalStates()


def _decode_transactional(data: Any) -> Transactional:
    fields = _transaction_fields(data)
    return Transactional(fields[0], _nested_outcome(fields[1] if len(fields) > 1 else None))


def _transaction_fields(data: Any) -> list[Any]:
    """A transaction's id and what follows it."""
    fields = read(data)
    if not isinstance(fields, list) or not fields or not isinstance(fields[0], bytes):
        raise decode_error("a transactional state without transaction id")
    return fields


def _nested_outcome(value: Any) -> Outcome | None:
    if value is None:
        return None
    if not isinstance(value, Described) or not isinstance(value.value, list):
        raise decode_error("an outcome that is no described list")
    code = value.descriptor
    state = _STATES_BY_NAME.get(code) if isinstance(code, str) else code
    fields = value.value
    if state == ACCEPTED_STATE:
        return ACCEPTED
    if state == RELEASED_STATE:
        return RELEASED
    if state == RECEIVED_STATE:
        return RECEIVED
    if state == MODIFIED_STATE:
        annotations = fields[2] if len(fields) > 2 else None
        return Modified(_flag(fields, 0), _flag(fields, 1), _exception(annotations), _is_duplicate(annotations))
    if state == REJECTED_STATE:
        error = fields[0] if fields else None
        parts = error.value if isinstance(error, Described) and isinstance(error.value, list) else []
        info = parts[2] if len(parts) > 2 else None
        return Rejected(_text(parts, 0), _text(parts, 1), _info(info), _tag(info))
    raise decode_error("an outcome that AMQP does not know")


def _info(fields: Any) -> tuple[tuple[str, str | int], ...]:
    """Of an error's info map, the texts and numbers."""
    if not isinstance(fields, dict):
        return ()
    return tuple((str(name), _plain(value)) for name, value in fields.items() if isinstance(value, str | int))


def _tag(fields: Any) -> bytes:
    tag = fields.get(DELIVERY_TAG) if isinstance(fields, dict) else None
    return tag if isinstance(tag, bytes) else b""


def _plain(value: str | int) -> str | int:
    """Without AMQP's kind of text or number."""
    if isinstance(value, bool):
        return value
    return str(value) if isinstance(value, str) else int(value)


def _exception(annotations: Any) -> str:
    text = annotations.get(EXCEPTION) if isinstance(annotations, dict) else None
    return str(text) if isinstance(text, str) else ""


def _is_duplicate(annotations: Any) -> bool:
    return isinstance(annotations, dict) and annotations.get(DUPLICATE) is True


def _annotations_of(outcome: Modified) -> dict[str, Any]:
    annotations: dict[str, Any] = {}
    if outcome.text:
        annotations[EXCEPTION] = outcome.text
    if outcome.duplicate:
        annotations[DUPLICATE] = True
    return annotations


def _flag(fields: list[Any], index: int) -> bool:
    return len(fields) > index and fields[index] is True


def _text(fields: list[Any], index: int) -> str:
    return str(fields[index]) if len(fields) > index and isinstance(fields[index], str) else ""


def write_outcome(delivery: Any, outcome: Outcome) -> None:
    """State `outcome` for `delivery`, without settling it."""
    kind = type(outcome)
    if kind is Accepted:
        lib.pn_delivery_update(delivery, ACCEPTED_STATE)
        return
    if kind is Released:
        lib.pn_delivery_update(delivery, RELEASED_STATE)
        return
    if kind is Received:
        lib.pn_delivery_update(delivery, RECEIVED_STATE)
        return
    if isinstance(outcome, Transactional):
        write_fields(delivery, TRANSACTIONAL_STATE, _transactional.fields_of(outcome, _described))
        return
    if isinstance(outcome, Declared):
        write_fields(delivery, DECLARED_STATE, encode_fields(outcome.txn_id))
        return
    disposition = lib.pn_delivery_local(delivery)
    if isinstance(outcome, Rejected):
        condition = lib.pn_disposition_condition(disposition)
        write_condition(condition, outcome.condition, outcome.description, _info_of(outcome))
        lib.pn_delivery_update(delivery, REJECTED_STATE)
    elif isinstance(outcome, Modified):
        lib.pn_disposition_set_failed(disposition, outcome.delivery_failed)
        lib.pn_disposition_set_undeliverable(disposition, outcome.undeliverable_here)
        if annotations := _annotations_of(outcome):
            write_map(lib.pn_disposition_annotations(disposition), annotations)
        lib.pn_delivery_update(delivery, MODIFIED_STATE)
    else:
        raise TypeError(f"{kind.__name__} is no delivery state")


def _info_of(outcome: Rejected) -> dict[str, Any]:
    info: dict[str, Any] = dict(outcome.info)
    if outcome.tag:
        info[DELIVERY_TAG] = outcome.tag
    return info


def _described(outcome: Outcome) -> Described:
    if isinstance(outcome, Accepted):
        return Described(ULong(ACCEPTED_STATE), [])
    if isinstance(outcome, Released):
        return Described(ULong(RELEASED_STATE), [])
    if isinstance(outcome, Modified):
        annotations = {Symbol(name): value for name, value in _annotations_of(outcome).items()}
        fields: list[Any] = [outcome.delivery_failed, outcome.undeliverable_here]
        return Described(ULong(MODIFIED_STATE), [*fields, annotations] if annotations else fields)
    if isinstance(outcome, Rejected):
        if not outcome.condition:
            return Described(ULong(REJECTED_STATE), [])
        parts: list[Any] = [Symbol(outcome.condition), outcome.description or None]
        if info := _info_of(outcome):
            parts.append({Symbol(name): value for name, value in info.items()})
        error = Described(ULong(0x1D), parts)
        return Described(ULong(REJECTED_STATE), [error])
    raise TypeError(f"{type(outcome).__name__} is no outcome of a transaction")


def write_condition(condition: Any, name: str, description: str, info: dict[str, Any] | None = None) -> None:
    """Set an engine condition (AMQP 2.8.14); an empty `name` clears it."""
    lib.pn_condition_clear(condition)
    if not name:
        return
    lib.pn_condition_set_name(condition, name.encode("ascii", "replace"))
    if description:
        lib.pn_condition_set_description(condition, description.encode("utf-8"))
    if info:
        data = lib.pn_condition_info(condition)
        put(data, {Symbol(key): value for key, value in info.items()})


def read_condition(condition: Any) -> tuple[str, str, dict[str, Any]]:
    """The name, description and info of a peer's condition, empty if it set none."""
    if not lib.pn_condition_is_set(condition):
        return "", "", {}
    info = read(lib.pn_condition_info(condition))
    return (
        c_text(lib.pn_condition_get_name(condition)) or "",
        c_text(lib.pn_condition_get_description(condition)) or "",
        {str(key): value for key, value in info.items()} if isinstance(info, dict) else {},
    )
