"""The one-pass reading of a message against the careful one."""

from hypothesis import given
from hypothesis import strategies as st

from legato.amqp.admission import Admission
from legato.amqp.header import Header
from legato.amqp.message import DataBody, Properties, ValueBody, encode_message
from legato.amqp.sections import normalise, scan
from legato.amqp.special import Special, special_of
from legato.amqp.types import Symbol
from legato.errors import ProtocolError

messages = st.builds(
    encode_message,
    header=st.builds(Header, durable=st.booleans(), priority=st.integers(0, 9), delivery_count=st.integers(0, 3)),
    message_annotations=st.none()
    | st.dictionaries(st.text("abc", min_size=1).map(Symbol), st.integers(0, 9), max_size=3),
    properties=st.none()
    | st.builds(Properties, message_id=st.none() | st.text(max_size=300), to=st.none() | st.text()),
    application_properties=st.none() | st.dictionaries(st.text(max_size=9), st.text(max_size=99), max_size=4),
    body=st.none()
    | st.builds(DataBody, st.binary(max_size=400))
    | st.builds(ValueBody, st.text(max_size=400) | st.integers(0, 9)),
)


def carefully(data: bytes) -> tuple[bytes, str, Special | None] | str:
    try:
        sections = scan(data)
        return normalise(data, sections), sections.message_id, special_of(sections)
    except ProtocolError as error:
        return error.condition


ADMISSION = Admission()
"""One for all examples: what it remembers of one must not mislead it on the next."""


def at_once(data: bytes) -> tuple[bytes, str, Special | None] | str:
    try:
        return ADMISSION.admit(data)
    except ProtocolError as error:
        return error.condition


@given(messages)
def test_both_readings_agree_on_messages(data: bytes) -> None:
    assert at_once(data) == at_once(data) == carefully(data)


@given(messages, st.integers(0, 200), st.integers(0, 255))
def test_both_readings_agree_on_broken_messages(data: bytes, place: int, value: int) -> None:
    at_once(data)
    broken = bytearray(data)
    broken[place % len(broken)] = value
    assert at_once(bytes(broken)) == carefully(bytes(broken))
    assert at_once(data[: place % len(data)]) == carefully(data[: place % len(data)])
