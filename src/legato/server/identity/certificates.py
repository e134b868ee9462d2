"""Certificates: the TLS settings of the listener, and which user a peer's certificate stands for."""

from __future__ import annotations

import contextlib
import hashlib
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from legato.errors import ConfigError
from legato.server.config.configuration import Config, ExternalRule, TlsSection
from legato.server.identity.users_file import check_foreign_name

_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_PRIVATE_KEY = re.compile(rb"-----BEGIN ([A-Z]+ )*PRIVATE KEY-----")
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(section: TlsSection) -> ssl.SSLContext | None:
    """The TLS settings of a listener; None if it is to speak plain TCP.

    Raises:
        ConfigError: a file cannot be used; the message names it.
    """
    if not section.certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = _VERSIONS[section.minimum_version]
    _see_readable("tls.certificate", section.certificate)
    _see_readable("tls.key", section.key)
    try:
        context.load_cert_chain(section.certificate, section.key)
    except (OSError, ssl.SSLError) as error:
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                f"tls.key {section.key} is not the key of tls.certificate {section.certificate}."
            ) from None
        why = _lacking(section) or str(error)
        raise ConfigError(f"Cannot use tls.certificate {section.certificate}: {why}.") from None
    if section.client_ca:
        try:
            context.load_verify_locations(section.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"Cannot use tls.client_ca {section.client_ca}: {error}.") from None
        # Who shows none where they are required is sent away as it logs in: backups, which have none, may come.
        context.verify_mode = ssl.CERT_NONE if section.client_certificates == "none" else ssl.CERT_OPTIONAL
    if section.client_crl:
        try:
            context.load_verify_locations(section.client_crl)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"Cannot use tls.client_crl {section.client_crl}: {error}.") from None
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def _lacking(section: TlsSection) -> str:
    """What the two files lack, in words that OpenSSL does not have; empty if it is something else."""
    certificate, key = (Path(file).read_bytes() for file in (section.certificate, section.key))
    if _CERTIFICATE not in certificate:
        swapped = f", and tls.key {section.key} has one: the two seem to be swapped" if _CERTIFICATE in key else ""
        return f"it has no certificate in PEM (-----BEGIN CERTIFICATE-----){swapped}"
    if not _PRIVATE_KEY.search(key):
        return f"tls.key {section.key} has no private key in PEM (-----BEGIN PRIVATE KEY-----)"
    return ""


def _see_readable(setting: str, file: str) -> None:
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise ConfigError(f"Cannot read {setting} {file}: {error.strerror}.") from None


def takes_certificates(config: Config) -> bool:
    """Whether peers can log in with a certificate."""
    return bool(config.tls.client_ca) and config.tls.client_certificates != "none"


def trusted(section: TlsSection) -> bytes:
    """A digest of what decides whose certificates are taken.

    A file that cannot be read any more is as another one: a backup takes over with what it read before.
    """
    digest = hashlib.sha256(section.client_certificates.encode())
    for file in (section.client_ca, section.client_crl):
        content = b""
        with contextlib.suppress(OSError):
            content = Path(file).read_bytes() if file else b""
        digest.update(hashlib.sha256(content).digest())
    return digest.digest()


def check_rules(rules: str | list[ExternalRule]) -> None:
    """See that rules can be used.

    Raises:
        ConfigError: one cannot; the message names it.
    """
    for rule in _rules(rules):
        kind, _, name = rule.take.partition(":")
        if (kind, name.lower()) not in {("san", "email"), ("san", "dns"), ("san", "uri")} and (
            kind != "subject" or not name
        ):
            raise ConfigError(
                f"auth.external_user: {rule.take!r} is no part of a certificate; there are san:email, san:dns, "
                "san:uri, and subject:CN or another attribute of the subject."
            )
        try:
            pattern = re.compile(rule.match)
            rule.user.format(*[""] * (pattern.groups + 1))
        except (re.error, IndexError, KeyError, ValueError) as error:
            raise ConfigError(f"auth.external_user: the rule for {rule.take!r} cannot be used: {error}.") from None


def user_of(certificate: dict[str, Any], rules: str | list[ExternalRule]) -> str | None:
    """The user that a certificate stands for, by the first rule that finds one; None if none does.

    Args:
        certificate: as `ssl.SSLSocket.getpeercert` has it.
    """
    for rule in _rules(rules):
        for value in _values(certificate, rule.take):
            found = re.fullmatch(rule.match, value)
            if found is None:
                continue
            try:
                return check_foreign_name(rule.user.format(found[0], *(group or "" for group in found.groups())))
            except ConfigError:
                continue
    return None


def _rules(rules: str | list[ExternalRule]) -> list[ExternalRule]:
    return [ExternalRule(rules)] if isinstance(rules, str) else rules


_SUBJECT = {"CN": "commonName", "O": "organizationName", "OU": "organizationalUnitName", "UID": "userId"}


def _values(certificate: dict[str, Any], take: str) -> Iterator[str]:
    kind, _, name = take.partition(":")
    if kind == "san":
        for found, value in certificate.get("subjectAltName", ()):
            if found.lower() == name.lower():
                yield value
    else:
        wanted = _SUBJECT.get(name.upper(), name)
        for attributes in certificate.get("subject", ()):
            for found, value in attributes:
                if found == wanted:
                    yield value
