"""Messages lose their time to live and their expiry, and nothing else."""

import pytest

from legato.amqp.codec.expiry_removal import without_expiry
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, decode_message, encode_message


@pytest.mark.parametrize("ttl_ms", [None, 1000])
@pytest.mark.parametrize("expiry_ms", [None, 5000])
def test_only_the_expiry_goes(ttl_ms: int | None, expiry_ms: int | None) -> None:
    def made(ttl_ms: int | None, expiry_ms: int | None) -> bytes:
        return encode_message(
            header=Header(durable=True, priority=7, ttl_ms=ttl_ms),
            message_annotations={"x-opt-jms-dest": 0},
            properties=Properties(message_id="ID:1", absolute_expiry_ms=expiry_ms, creation_ms=1, group_id="g"),
            application_properties={"n": 1},
            body=DataBody(b"x" * 300),
        )

    stripped = without_expiry(made(ttl_ms, expiry_ms))
    assert decode_message(stripped) == decode_message(made(None, None))


def test_a_message_without_properties_stays_as_it_is() -> None:
    data = encode_message(header=Header(), body=DataBody(b"x"))
    assert without_expiry(data) is data


def test_what_cannot_be_read_stays_as_it_is() -> None:
    assert without_expiry(b"\xff\xff") == b"\xff\xff"
