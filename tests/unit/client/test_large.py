"""Bodies in files."""

import io
import lzma
import os
import tempfile
from pathlib import Path

import pytest

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, ValueBody, encode_message
from legato.client import BytesMessage, MessageFormatError, ObjectMessage, TextMessage
from legato.client.mapping.received import read_message
from legato.client.messages.destinations import Queue
from legato.client.messages.large import FileRegion, Spool, large_data, reader
from legato.errors import ProtocolError

BODY = bytes(range(256)) * 16


def message_of(body: DataBody | ValueBody) -> bytes:
    return encode_message(header=Header(durable=True), body=body)


def received(data: bytes, *, first: int = 100) -> object:
    """What a client makes of a message that came in two parts."""
    large = large_data(data[:first], spool := Spool())
    spool.append(data[first:])
    return read_message(large, Queue("q"), lambda message: None)


def test_a_file_is_read_from_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(BODY)
    with (tmp_path / "file").open("rb") as file:
        file.seek(10)
        region = FileRegion(file)
        assert region.size == len(BODY) - 10
        assert region.read(5, 7) == BODY[15:22]
        assert region.read(region.size - 3, 100) == BODY[-3:]
        assert file.tell() == 10


def test_what_was_written_and_not_flushed_counts(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        file.write(BODY)
        file.seek(0)
        assert FileRegion(file).read(0, len(BODY)) == BODY


def test_files_that_are_something_else_below_are_read_as_themselves(tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(lzma.compress(BODY))
    with lzma.open(tmp_path / "packed") as packed:
        assert FileRegion(packed).read(100, 10) == BODY[100:110]  # type: ignore[arg-type]
    with tempfile.NamedTemporaryFile() as temporary:
        temporary.write(BODY)
        temporary.seek(0)
        assert FileRegion(temporary).read(0, 5) == BODY[:5]  # type: ignore[arg-type]


def test_more_than_a_section_holds_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("w+b") as file:
        file.truncate(1 << 32)
        with pytest.raises(MessageFormatError):
            FileRegion(file)


def test_a_reader_is_a_file_of_its_own() -> None:
    region = FileRegion(io.BytesIO(BODY))
    one, other = reader(region), reader(region)
    assert one.read(10) == BODY[:10]
    assert other.read() == BODY
    assert one.seek(-5, os.SEEK_END) == len(BODY) - 5
    assert one.read() == BODY[-5:]
    assert one.seek(3) == 3
    with pytest.raises(ValueError, match="negative"):
        reader(region).seek(-1)


@pytest.mark.parametrize("size", [3, 255, 300])
def test_a_received_body_is_read_from_its_file(size: int) -> None:
    message = received(message_of(DataBody(BODY[:size])), first=12)
    assert isinstance(message, BytesMessage)
    assert message.body_length == size
    with message.open() as body:
        assert body.read() == BODY[:size]
    assert message.body == BODY[:size]


def test_what_is_no_single_section_of_data_is_read_in_memory() -> None:
    two = received(message_of(DataBody(b"one")) + b"\x00\x53\x75\xa0\x03two", first=12)
    assert isinstance(two, BytesMessage)
    assert two.open().read() == b"onetwo"
    assert two.body_length == 6


def test_other_kinds_of_messages_are_what_they_are() -> None:
    text = received(message_of(ValueBody("long" * 100)), first=20)
    assert isinstance(text, TextMessage)
    assert text.text == "long" * 100
    values = received(message_of(ValueBody({"a": "long" * 100})), first=20)
    assert isinstance(values, ObjectMessage)
    assert values.object == {"a": "long" * 100}


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(ProtocolError):
        large_data(b"nothing of the kind", Spool())
