"""Problems of peers that let no AMQP connection come about, in sentences that say what to do."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime

from legato.client.failover.certificate_facts import CertificateFacts, read_certificate
from legato.client.failover.uri import Host
from legato.errors import JMSError, JMSSecurityError
from legato.quoting import escaped, quoted

PROBE_TIMEOUT_S = 2.0
NAMES_SHOWN = 5
_GREETING = b"AMQP\x03\x01\x00\x00"
_EXPIRED, _NOT_YET_VALID, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64
"""OpenSSL's numbers of what is wrong with a certificate."""
_NO_TLS = frozenset(
    ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL", "BAD_PACKET_LENGTH")
)

NO_TCP = "no answer to the attempt to connect {within}: the host is down, or a firewall drops its packets"
NO_HANDSHAKE = (
    "it took the connection but did not finish the TLS handshake {within}: it hangs, or speaks no TLS at this port "
    "(then write amqp:// in place of amqps://)"
)
NO_GREETING = (
    "it took the connection but did not answer AMQP's greeting {within}: it hangs, or is no AMQP broker, or wants TLS "
    "(then write amqps:// in place of amqp://)"
)
NO_LOGIN = "it answered the greeting but did not finish the login (SASL) {within}: it hangs, or is overloaded"
NO_OPEN = "it finished the login but did not answer AMQP's open {within}: it hangs, or is overloaded"


class WrongProtocolError(JMSError):
    """What answers at a host's port does not speak what the URI says: waiting does not help."""


class UnheardError(ConnectionError):
    """A peer took the connection and closed it without a word."""


@contextlib.contextmanager
def answered_within(timeout_s: float, sentence: str) -> Iterator[None]:
    """Have a time-out say what was waited for, for how long, and what is likely wrong."""
    try:
        yield
    except TimeoutError as error:
        raise TimeoutError(sentence.format(within=f"within {timeout_s:g} s (connect_timeout_s)")) from error


def check_greeting(data: bytes) -> None:
    """Look at the first bytes of a peer that was greeted with AMQP.

    Raises:
        WrongProtocolError: it speaks something else.
    """
    if data[:2] in (b"\x15\x03", b"\x16\x03", b"\x15"):
        raise wants_tls()
    if data.startswith((b"AMQP\x00\x00\x09", b"AMQP\x01\x01")):
        raise WrongProtocolError("it speaks AMQP 0-9-1, not AMQP 1.0; RabbitMQ speaks both from its version 4.0 on")
    if data.startswith(b"HTTP/"):
        raise WrongProtocolError("it speaks HTTP: this is the port of a web server, not of an AMQP broker")
    if not data.startswith(b"AMQP"[: len(data)]):
        begin = escaped(repr(data[:16]))
        raise WrongProtocolError(f"it does not speak AMQP 1.0, its first bytes are {begin}: check the port")


def wants_tls() -> WrongProtocolError:
    """The peer of an `amqp` URI speaks TLS."""
    return WrongProtocolError(
        "the peer speaks TLS: use amqps:// in place of amqp://, or the port of its listener without TLS"
    )


def without_tls(error: Exception) -> WrongProtocolError:
    """The peer of an `amqps` URI speaks none."""
    return WrongProtocolError(
        "it speaks no TLS at this port: write amqp:// in place of amqps://, or the port of its TLS listener",
        linked=error,
    )


def tls_failed(host: Host, error: ssl.SSLError) -> Exception:
    """The error for TLS that failed, but not because of the peer's certificate."""
    reason = error.reason or ""
    if reason in _NO_TLS:
        return without_tls(error)
    if isinstance(error, ssl.SSLEOFError):
        return UnheardError("it closed the connection during the TLS handshake")
    if "CERTIFICATE_REQUIRED" in reason:
        hint = "it asks for a certificate of the client: give tls_cert_file and tls_key_file"
    elif "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        hint = "it does not accept the client's certificate (tls_cert_file)"
    else:
        return error
    said = reason.replace("_", " ").lower()
    return JMSSecurityError(f"{host} ended the TLS connection ({said}): {hint}.", linked=error)


def distrusted(host: Host, error: ssl.SSLCertVerificationError) -> JMSSecurityError:
    """The error for a certificate that was not accepted: whose it is, and what is wrong with it."""
    code = error.verify_code
    text = None
    if code in (_EXPIRED, _NOT_YET_VALID, _OTHER_NAME, _OTHER_ADDRESS):
        facts = _facts(host)
        text = None if facts is None else problem(host, code, facts, datetime.now(UTC))
        remedy = "have it renewed, check this machine's clock, and that the URI has a name that it is for"
    else:
        remedy = "name its authority with tls_ca_file"
    text = text or f"The certificate of {host} is not trusted ({error.verify_message}); {remedy}."
    return JMSSecurityError(text, linked=error)


def problem(host: Host, code: int, facts: CertificateFacts, now: datetime) -> str | None:
    """What is wrong with a certificate, by OpenSSL's number; None if that is not to be seen in it."""
    whose = f"The certificate of {host} ({quoted(facts.subject)}, issued by {quoted(facts.issuer)})"
    clock = f"or correct this machine's clock, which says {now:%Y-%m-%d %H:%M} UTC."
    if code == _EXPIRED:
        if facts.ends < now:
            return f"{whose} expired on {facts.ends:%Y-%m-%d %H:%M} UTC. Have it renewed, {clock}"
        return f"A certificate of the authorities above that of {host} has expired. Have it renewed, {clock}"
    if code == _NOT_YET_VALID and facts.begins > now:
        return f"{whose} is valid only from {facts.begins:%Y-%m-%d %H:%M} UTC on. Wait, {clock}"
    if code in (_OTHER_NAME, _OTHER_ADDRESS):
        names = ", ".join(map(quoted, facts.names[:NAMES_SHOWN])) or "no name at all"
        expired = f" It expired on {facts.ends:%Y-%m-%d %H:%M} UTC, too." if facts.ends < now else ""
        return f"{whose} is for {names}, not for {quoted(host.name)}: connect by a name that it is for.{expired}"
    return None


def explained(host: Host, error: Exception, *, tls: bool) -> Exception:
    """A second look at a peer that closed the connection without a word: it may speak TLS unasked, or not at all."""
    if not isinstance(error, UnheardError):
        return error
    if tls:
        return without_tls(error) if _greets(host) else error
    return wants_tls() if _speaks_tls(host) else error


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _facts(host: Host) -> CertificateFacts | None:
    """What a certificate says that was not accepted: it is asked for once more, and the peer is told nothing else."""
    try:
        with (
            socket.create_connection((host.name, host.port), PROBE_TIMEOUT_S) as plain,
            _unverified().wrap_socket(plain, server_hostname=host.name) as secured,
        ):
            der = secured.getpeercert(binary_form=True)
            return None if der is None else read_certificate(der)
    except (OSError, ValueError):
        return None


def _greets(host: Host) -> bool:
    try:
        with socket.create_connection((host.name, host.port), PROBE_TIMEOUT_S) as plain:
            plain.sendall(_GREETING)
            return plain.recv(4) == b"AMQP"
    except OSError:
        return False


def _speaks_tls(host: Host) -> bool:
    try:
        with (
            socket.create_connection((host.name, host.port), PROBE_TIMEOUT_S) as plain,
            _unverified().wrap_socket(plain, server_hostname=host.name),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
