"""Finds the calls of flows in a message's properties (`legato.flows.model.wire` writes them)."""

from __future__ import annotations

from legato.amqp.codec.map_entries import read_entry
from legato.amqp.codec.values import malformed, skip_value
from legato.amqp.names import FLOW_BUNDLE, FLOW_CALL, FLOW_CALL_NUMBER, FLOW_ID, FLOW_STAGE, FLOW_TRACE_ID
from legato.errors import ProtocolError

FLOW_KEY = FLOW_STAGE.encode()
"""A message without this in its bytes is no flow's: all but flows' pay for one search."""

TEXT_MAX = 255
"""Of longer ids this many characters are told."""

FlowCall = tuple[str, str, str, str, int, int]
"""Flow id, trace id, the stage that is called, the kind of call, its number in the flow; and how many calls it stands
for: those of a bundle, of which only the stage is known."""

_WANTED = {name.encode(): place for place, name in enumerate((FLOW_ID, FLOW_TRACE_ID, FLOW_STAGE, FLOW_CALL))}
_NUMBERS = {FLOW_CALL_NUMBER.encode(): 0, FLOW_BUNDLE.encode(): 1}
_SHORT_STRING, _LONG_STRING = 0xA1, 0xB1


def flow_calls(data: bytes, begin: int, end: int) -> tuple[FlowCall, ...]:
    """The calls of flows that a message carries; none if its properties do not say it, or cannot be read.

    Args:
        data: the message.
        begin: where the keys and values of its application properties begin.
        end: where they end.
    """
    try:
        (flow_id, trace_id, stage, call), (number, count) = _read(data, begin, end)
    except (ProtocolError, IndexError, UnicodeDecodeError):
        return ()
    return ((flow_id, trace_id, stage, call, number, max(count, 1)),) if stage and (flow_id or count > 1) else ()


def _read(data: bytes, at: int, end: int) -> tuple[list[str], list[int]]:
    texts, numbers = ["", "", "", ""], [0, 1]
    while at < end:
        key = b""
        if data[at] == _SHORT_STRING:
            begin, at = at + 2, at + 2 + data[at + 1]
            key = data[begin:at]
        else:
            begin, at = at, skip_value(data, at)
            if data[begin] == _LONG_STRING:
                key = data[begin + 5 : at]
        place = _WANTED.get(key)
        if data[at] == _SHORT_STRING:
            begin, at = at + 2, at + 2 + data[at + 1]
            if place is not None:
                texts[place] = data[begin:at].decode()
        else:
            if place is not None or key in _NUMBERS:
                value = read_entry(data, at, end)
                if place is not None and value.__class__ is str:
                    texts[place] = value[:TEXT_MAX]
                elif place is None and value.__class__ is int:
                    numbers[_NUMBERS[key]] = value
            at = skip_value(data, at)
    if at != end:
        raise malformed("a map and its entries differ in size")
    return texts, numbers
