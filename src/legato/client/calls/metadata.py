"""Metadata of a connection (Jakarta Messaging 6.1.6)."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from platform import platform
from socket import gethostname
from typing import Any

import msgspec

from legato.amqp.codec.types import UInt

JMS_MAJOR_VERSION = 3
JMS_MINOR_VERSION = 1
JMSX_PROPERTY_NAMES = ("JMSXGroupID", "JMSXGroupSeq", "JMSXDeliveryCount", "JMSXUserID")


class ConnectionMetaData(msgspec.Struct, frozen=True):
    """Versions of the specification and of Legato, and the properties with names that are the specification's."""

    jms_major_version: int
    jms_minor_version: int
    jms_provider_name: str
    provider_version: str
    provider_major_version: int
    provider_minor_version: int
    jmsx_property_names: tuple[str, ...]

    @property
    def jms_version(self) -> str:
        """The specification's version, such as `3.1`."""
        return f"{self.jms_major_version}.{self.jms_minor_version}"


@cache
def provider_version() -> str:
    """The version of this distribution: read once, each reading opens files."""
    try:
        return version("legato")
    except PackageNotFoundError:  # run from its sources
        return "0.0"


def open_properties() -> dict[str, Any]:
    """What the open of a connection says of the client: brokers show it in their logs and lists of connections."""
    return {
        "product": "Legato",
        "version": provider_version(),
        "platform": platform(),
        "hostname": gethostname(),
        "pid": UInt(os.getpid()),
    }


def connection_metadata() -> ConnectionMetaData:
    """What all connections say."""
    found = provider_version()
    major, minor = (int(part) for part in found.split(".")[:2])
    return ConnectionMetaData(
        jms_major_version=JMS_MAJOR_VERSION,
        jms_minor_version=JMS_MINOR_VERSION,
        jms_provider_name="Legato",
        provider_version=found,
        provider_major_version=major,
        provider_minor_version=minor,
        jmsx_property_names=JMSX_PROPERTY_NAMES,
    )
