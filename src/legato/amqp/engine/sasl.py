"""SASL in front of the engine, for either side and without I/O (AMQP 5.3); the engine itself can only do ANONYMOUS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from legato import limits
from legato.amqp.codec.types import Array, Described, Symbol, UByte, ULong
from legato.amqp.codec.values import decode_value, encode_value
from legato.amqp.engine.client_mechanisms import ClientMechanism, choose
from legato.amqp.engine.mechanisms import (
    Anonymous,
    Challenge,
    Check,
    Failure,
    Mechanism,
    Plain,
    Result,
    Success,
    Verify,
)
from legato.errors import ProtocolError
from legato.quoting import quoted

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"

_MECHANISMS, _INIT, _CHALLENGE, _RESPONSE, _OUTCOME = 0x40, 0x41, 0x42, 0x43, 0x44
_CODES_BY_NAME = {
    "amqp:sasl-mechanisms:list": _MECHANISMS,
    "amqp:sasl-init:list": _INIT,
    "amqp:sasl-challenge:list": _CHALLENGE,
    "amqp:sasl-response:list": _RESPONSE,
    "amqp:sasl-outcome:list": _OUTCOME,
}
_OK, _AUTH, _SYS_TEMP = 0, 1, 4
_SASL_FRAME_TYPE = 1
_STEPS_MAX = 8
_ELEMENTS_MAX = 256
"""Of a frame; a server names its mechanisms in one."""


class Negotiator:
    """Base of both sides: feed `receive_data`, send `data_to_send`, until `done` or `failed`.

    Attributes:
        done: AMQP comes next, beginning with `leftover`.
        failed: why the connection cannot go on; send what is to be sent, then close it.
        leftover: bytes that belong to the `Connection`.
        user: who the peer is (on a server), or whom the peer takes us for.
    """

    def __init__(self) -> None:
        self.done = False
        self.failed: str | None = None
        self.leftover = b""
        self.user: str | None = None
        self._frame_bytes_max = limits.SASL_FRAME_BYTES_MAX
        self._input = bytearray()
        self._output = bytearray()
        self._header_seen = False
        self._steps = 0
        self._waits = False
        """Whether what was received waits for a result that somebody else works on."""

    def receive_data(self, data: bytes) -> None:
        """Take what a socket delivered."""
        if self.done or self.failed is not None:
            return
        self._input += data
        self._go_on()

    def _go_on(self) -> None:
        try:
            if not self._header_seen and not self._take_header():
                return
            while not self.done and self.failed is None and not self._waits:
                frame = self._take_frame()
                if frame is None:
                    return
                self._on_frame(*frame)
        except ProtocolError as error:
            self._fail(str(error))
        if self.done:
            self.leftover = bytes(self._input)
            self._input.clear()

    def data_to_send(self) -> bytes:
        """Bytes to write to the socket."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def _take_header(self) -> bool:
        """Whether the frames of SASL begin."""
        size = min(len(self._input), len(SASL_HEADER))
        header = bytes(self._input[:size])
        if header == SASL_HEADER:
            del self._input[:size]
            self._header_seen = True
            self._on_header()
            return True
        if header == AMQP_HEADER:
            self._on_amqp_header()
        elif not (SASL_HEADER.startswith(header) or AMQP_HEADER.startswith(header)):
            self._output += SASL_HEADER
            self._fail(_other_protocol(header))
        if self.done:
            self.leftover = bytes(self._input)
            self._input.clear()
        return False

    def _take_frame(self) -> tuple[int, list[Any]] | None:
        buffer = self._input
        if len(buffer) < 8:
            return None
        size = int.from_bytes(buffer[:4], "big")
        start = buffer[4] * 4
        if not 8 <= start <= size <= self._frame_bytes_max or buffer[5] != _SASL_FRAME_TYPE:
            raise ProtocolError("a SASL frame is malformed or too large")
        if len(buffer) < size:
            return None
        body = bytes(buffer[start:size])
        del buffer[:size]
        value, _ = decode_value(body, 0, [_ELEMENTS_MAX, 0])
        if not isinstance(value, Described) or not isinstance(value.value, list):
            raise ProtocolError("a SASL frame holds no performative")
        descriptor = value.descriptor
        code = _CODES_BY_NAME.get(descriptor, 0) if isinstance(descriptor, str) else descriptor
        return code, value.value

    def _send(self, code: int, fields: list[Any]) -> None:
        body = encode_value(Described(ULong(code), fields))
        self._output += (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body

    def _fail(self, reason: str) -> None:
        self.failed = reason
        self._input.clear()

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > _STEPS_MAX:
            raise ProtocolError("the SASL exchange does not come to an end")

    def _on_header(self) -> None:
        raise NotImplementedError

    def _on_amqp_header(self) -> None:
        raise NotImplementedError

    def _on_frame(self, code: int, fields: list[Any]) -> None:
        raise NotImplementedError


class SaslServer(Negotiator):
    """The broker's side.

    Args:
        anonymous: whether to offer ANONYMOUS, and to accept peers that leave SASL out.
        verify: says whether a password is a user's; PLAIN is offered if it is given.
        mechanisms: further ones: a name, and what makes a mechanism for one exchange.
        frame_bytes_max: the largest frame that a peer may send.

    Attributes:
        check: work whose result decides, if it takes too long to be done here: run it, and give the result to `resume`.
        refused: why the peer's login was refused, if that is how the exchange failed.
        mechanism: the name of the mechanism that the peer chose.
        proved: what the mechanism found out about the user besides the name.
    """

    def __init__(
        self,
        *,
        anonymous: bool = True,
        verify: Verify | None = None,
        mechanisms: Mapping[str, Callable[[], Mechanism]] | None = None,
        frame_bytes_max: int = limits.SASL_FRAME_BYTES_MAX,
    ) -> None:
        super().__init__()
        self._frame_bytes_max = frame_bytes_max
        self.check: Check | None = None
        self.refused: Failure | None = None
        self.mechanism = ""
        self.proved: Any = None
        self._anonymous = anonymous
        self._factories: dict[str, Callable[[], Mechanism]] = dict(mechanisms or {})
        if verify is not None:
            self._factories["PLAIN"] = lambda: Plain(verify)
        if anonymous:
            self._factories["ANONYMOUS"] = Anonymous
        self._mechanism: Mechanism | None = None

    def _on_header(self) -> None:
        self._output += SASL_HEADER
        self._send(_MECHANISMS, [Array(Symbol(name) for name in self._factories)])

    def _on_amqp_header(self) -> None:
        if self._anonymous:
            self.user = Anonymous.USER
            self.done = True
        else:
            self._output += SASL_HEADER
            self._fail("the peer left SASL out, and anonymous peers are not allowed")

    def _on_frame(self, code: int, fields: list[Any]) -> None:
        self._count_step()
        if code == _INIT and self._mechanism is None:
            name = str(fields[0]) if fields else ""
            factory = self._factories.get(name)
            if factory is None:
                self._refuse(Failure(f"the mechanism {quoted(name)} is not offered"))
                return
            self._mechanism = factory()
            self.mechanism = name
            self._step(fields[1] if len(fields) > 1 else None)
        elif code == _RESPONSE and self._mechanism is not None:
            self._step(fields[0] if fields else None)
        else:
            raise ProtocolError("a SASL frame comes at the wrong time")

    def _step(self, response: Any) -> None:
        if response is not None and not isinstance(response, bytes):
            raise ProtocolError("a SASL response is no binary")
        assert self._mechanism is not None
        self._take(self._mechanism.step(response))

    def resume(self, result: Success | Failure) -> None:
        """The result of `check` is there; frames that came meanwhile are looked at now."""
        self.check = None
        self._waits = False
        self._take(result)
        self._go_on()

    def _take(self, result: Result) -> None:
        match result:
            case Challenge(data=data):
                self._send(_CHALLENGE, [data])
            case Success(user=user, data=data, proved=proved):
                self.user = user
                self.proved = proved
                self.done = True
                self._send(_OUTCOME, [UByte(_OK), data] if data else [UByte(_OK)])
            case Check():
                self.check = result
                self._waits = True
            case Failure():
                self._refuse(result)

    def _refuse(self, failure: Failure) -> None:
        self.refused = failure
        self._send(_OUTCOME, [UByte(_SYS_TEMP if failure.temporary else _AUTH)])
        self._fail(failure.reason)


class SaslClient(Negotiator):
    """The client's side.

    Args:
        username, password: who logs in; ANONYMOUS if there is no user name.
        token: what gives a bearer token of OAuth 2.0; used instead of a password.
        secret_may_be_shown: whether mechanisms are used that tell the broker the password or the token itself.
        certificate: whether the TLS connection shows a certificate of ours, which EXTERNAL refers to.
        or_anonymous: whether to log in as nobody in particular where the broker asks for no password.

    Attributes:
        failed_temporarily: the broker could not check now (`sys-temp`): another attempt may succeed.
    """

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        *,
        token: Callable[[], str] | None = None,
        secret_may_be_shown: bool = True,
        certificate: bool = False,
        or_anonymous: bool = False,
    ) -> None:
        super().__init__()
        self.failed_temporarily = False
        self._username = username
        self._password = password or ""
        self._token = token
        self._secret_may_be_shown = secret_may_be_shown
        self._certificate = certificate
        self._or_anonymous = or_anonymous
        self._mechanism: ClientMechanism | None = None
        self._output += SASL_HEADER

    def _on_header(self) -> None:
        """The server's mechanisms follow."""

    def _on_amqp_header(self) -> None:
        self._fail("the broker does not want SASL")

    def _on_frame(self, code: int, fields: list[Any]) -> None:
        self._count_step()
        if code == _MECHANISMS and self._mechanism is None:
            offered = fields[0] if fields else []
            self._choose([str(name) for name in ([offered] if isinstance(offered, str) else offered or [])])
        elif code == _OUTCOME and self._mechanism is not None:
            self._on_outcome(self._mechanism, fields)
        elif code == _CHALLENGE and self._mechanism is not None:
            challenge = fields[0] if fields else b""
            if not isinstance(challenge, bytes):
                raise ProtocolError("a SASL challenge is no binary")
            self._send(_RESPONSE, [self._mechanism.answer(challenge)])
        else:
            raise ProtocolError("a SASL frame comes at the wrong time")

    def _choose(self, offered: list[str]) -> None:
        chosen = choose(
            offered,
            username=self._username,
            password=self._password,
            token=self._token,
            secret_may_be_shown=self._secret_may_be_shown,
            certificate=self._certificate,
            or_anonymous=self._or_anonymous,
        )
        if isinstance(chosen, str):
            self._fail(chosen)
            return
        self._mechanism = chosen
        self._send(_INIT, [Symbol(chosen.name), chosen.begin()])

    def _on_outcome(self, mechanism: ClientMechanism, fields: list[Any]) -> None:
        code = fields[0] if fields else None
        data = fields[1] if len(fields) > 1 else None
        if code == _OK:
            mechanism.finish(data if isinstance(data, bytes) else b"")
            self.user = self._username or Anonymous.USER
            self.done = True
            return
        self.failed_temporarily = code == _SYS_TEMP
        if self.failed_temporarily:
            self._fail("the broker takes no login now")
        else:
            self._fail("the broker did not accept the user name and password")


def _other_protocol(begin: bytes) -> str:
    """What a peer speaks that begins so: the log of a broker is where people look who came to the wrong port."""
    if begin.startswith(b"AMQP") and begin[4:7] in (b"\x00\x00\x09", b"\x01\x01\x00", b"\x01\x01\x08", b"\x01\x01\x09"):
        return "the peer speaks AMQP 0-9-1, not AMQP 1.0; for Celery write legato:// in place of amqp://"
    if begin[:2] == b"\x16\x03":
        return "the peer speaks TLS, and this listener does not"
    if begin.startswith((b"GET ", b"HEAD ", b"POST ", b"PUT ", b"OPTIONS ")):
        return "the peer speaks HTTP, not AMQP 1.0"
    return "the peer does not speak AMQP 1.0 with SASL"
