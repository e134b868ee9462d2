"""When a broker's certificate ends, and who is told."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import trustme

from legato.errors import ConfigError
from legato.server.config.configuration import TlsSection
from legato.server.identity.certificate_expiry import SOON_S, expires_s, expiry_warnings
from legato.server.identity.certificates import tls_context

END = datetime.datetime(2031, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
FAR_END = datetime.datetime(2061, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)


def certificate(directory: Path, end: datetime.datetime) -> str:
    """One from an authority, behind its private key, as `cat key chain` makes it."""
    file = directory / f"{end:%Y}.pem"
    issued = trustme.CA().issue_cert("localhost", not_before=END - datetime.timedelta(days=90), not_after=end)
    issued.private_key_and_cert_chain_pem.write_to_path(str(file))
    return str(file)


@pytest.mark.parametrize("end", [END, FAR_END], ids=["UTCTime", "GeneralizedTime"])
def test_the_end_of_a_certificate_is_read(tmp_path: Path, end: datetime.datetime) -> None:
    assert expires_s(certificate(tmp_path, end)) == end.timestamp()


def test_the_log_warns_two_weeks_ahead_and_says_that_clients_refuse_one_that_has_expired(tmp_path: Path) -> None:
    """A broker served with an expired certificate and said nothing; only clients did."""
    file, end_s = certificate(tmp_path, END), END.timestamp()
    assert expiry_warnings(file, end_s - SOON_S) == []
    [soon] = expiry_warnings(file, end_s - SOON_S + 1)
    assert "expires on 2031-05-06 07:08 UTC" in soon
    [late] = expiry_warnings(file, end_s)
    assert "expired on 2031-05-06 07:08 UTC: clients refuse it" in late
    assert "legato reload" in late


@pytest.mark.parametrize("end", [END, FAR_END], ids=["UTCTime", "GeneralizedTime"])
def test_the_log_says_that_clients_refuse_one_that_is_not_valid_yet(tmp_path: Path, end: datetime.datetime) -> None:
    """As where a clock is wrong: the broker began without a word."""
    file, begin_s = certificate(tmp_path, end), (END - datetime.timedelta(days=90)).timestamp()
    assert expiry_warnings(file, begin_s) == []
    [early] = expiry_warnings(file, begin_s - 60)
    assert "is not valid before 2031-02-05 07:08 UTC, and this machine's clock says 2031-02-05 07:07 UTC" in early
    assert "clients refuse it until then; set the clock if it is wrong" in early


@pytest.mark.parametrize("content", [b"", b"\xff", b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_has_no_end(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "c.pem"
    file.write_bytes(content)
    assert expires_s(str(file)) is None
    assert expiry_warnings("") == expiry_warnings(str(tmp_path / "nothing")) == expiry_warnings(str(file)) == []


def test_errors_name_the_file_that_is_missing_and_a_key_of_another_certificate(tmp_path: Path) -> None:
    """They named the certificate for a missing key, and were OpenSSL's words for a wrong one."""
    first, second = certificate(tmp_path, END), certificate(tmp_path, FAR_END)
    with pytest.raises(ConfigError, match=r"Cannot read tls\.key .*gone\.pem: No such file"):
        tls_context(TlsSection(certificate=first, key=str(tmp_path / "gone.pem")))
    with pytest.raises(ConfigError, match=r"is not the key of tls\.certificate"):
        tls_context(TlsSection(certificate=first, key=second))


def test_a_certificate_and_a_key_that_are_swapped_are_told_so(tmp_path: Path) -> None:
    """It was `[SSL] PEM lib`."""
    issued = trustme.CA().issue_cert("localhost")
    key, chain = str(tmp_path / "key.pem"), str(tmp_path / "chain.pem")
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(chain)
    assert tls_context(TlsSection(certificate=chain, key=key)) is not None
    with pytest.raises(ConfigError, match=r"key\.pem: it has no certificate in PEM .*chain\.pem has one: the two"):
        tls_context(TlsSection(certificate=key, key=chain))
    with pytest.raises(ConfigError, match=r"tls\.key .*chain\.pem has no private key in PEM"):
        tls_context(TlsSection(certificate=chain, key=chain))
    with pytest.raises(ConfigError, match=r"it has no certificate in PEM \(-----BEGIN CERTIFICATE-----\)\."):
        tls_context(TlsSection(certificate=key, key=key))
