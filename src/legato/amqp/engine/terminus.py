"""Sources, targets and coordinators of links as plain values (AMQP 3.5, 4.5.1)."""

from __future__ import annotations

from typing import Any

import msgspec
from cproton import ffi, lib

from legato.amqp.engine.pndata import c_text, kept_bytes, read_map, read_symbols, write_map, write_symbols

_KINDS = {
    lib.PN_UNSPECIFIED: "none",
    lib.PN_SOURCE: "source",
    lib.PN_TARGET: "target",
    lib.PN_COORDINATOR: "coordinator",
}
_EXPIRY_POLICIES = {
    lib.PN_EXPIRE_WITH_LINK: "link-detach",
    lib.PN_EXPIRE_WITH_SESSION: "session-end",
    lib.PN_EXPIRE_WITH_CONNECTION: "connection-close",
    lib.PN_EXPIRE_NEVER: "never",
}
_DISTRIBUTION_MODES = {lib.PN_DIST_MODE_COPY: "copy", lib.PN_DIST_MODE_MOVE: "move"}
_BY_KIND = {name: number for number, name in _KINDS.items()}
_BY_EXPIRY_POLICY = {name: number for number, name in _EXPIRY_POLICIES.items()}
_BY_DISTRIBUTION_MODE = {name: number for number, name in _DISTRIBUTION_MODES.items()}


class Terminus(msgspec.Struct, kw_only=True):
    """One end of a link.

    `kind` is `source`, `target`, `coordinator`, `none` (null on the wire: a refusal), or "" when writing: the side it
    is used for. A source without address that is not dynamic reads as `none` (amqp.md C2.6). A filter's value may be
    `Described`. `durable` is 0 none, 1 configuration, 2 unsettled state.
    """

    address: str | None = None
    dynamic: bool = False
    durable: int = 0
    expiry_policy: str | None = None
    timeout_s: int = 0
    distribution_mode: str | None = None
    capabilities: list[str] = []
    filters: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    outcomes: list[str] = []
    kind: str = ""


def read_terminus(pn_terminus: Any) -> Terminus:
    """Copy a terminus out of the engine; raises ProtocolError if its text cannot be decoded."""
    kind = _KINDS[lib.pn_terminus_get_type(pn_terminus)]
    return Terminus(
        address=c_text(lib.pn_terminus_get_address(pn_terminus)),
        dynamic=lib.pn_terminus_is_dynamic(pn_terminus),
        durable=lib.pn_terminus_get_durability(pn_terminus),
        expiry_policy=_EXPIRY_POLICIES.get(lib.pn_terminus_get_expiry_policy(pn_terminus)),
        timeout_s=lib.pn_terminus_get_timeout(pn_terminus),
        distribution_mode=_DISTRIBUTION_MODES.get(lib.pn_terminus_get_distribution_mode(pn_terminus)),
        capabilities=read_symbols(lib.pn_terminus_capabilities(pn_terminus)),
        filters=read_map(lib.pn_terminus_filter(pn_terminus)),
        properties=read_map(lib.pn_terminus_properties(pn_terminus)),
        outcomes=read_symbols(lib.pn_terminus_outcomes(pn_terminus)),
        kind=kind,
    )


def terminus_kept_bytes(pn_terminus: Any, terminus: Terminus) -> int:
    """What a terminus that was read takes in memory, about: the engine has two of it, one for the answer."""
    return 3 * len(terminus.address or "") + kept_bytes(
        lib.pn_terminus_capabilities(pn_terminus),
        lib.pn_terminus_filter(pn_terminus),
        lib.pn_terminus_properties(pn_terminus),
        lib.pn_terminus_outcomes(pn_terminus),
        trees_kept=2,
    )


def write_terminus(pn_terminus: Any, terminus: Terminus, kind: str) -> None:
    """Write `terminus` into the engine; `kind` is used where it names none itself."""
    lib.pn_terminus_set_type(pn_terminus, _BY_KIND[terminus.kind or kind])
    address = None if terminus.address is None else terminus.address.encode("utf-8")
    lib.pn_terminus_set_address(pn_terminus, ffi.NULL if address is None else address)
    lib.pn_terminus_set_dynamic(pn_terminus, terminus.dynamic)
    lib.pn_terminus_set_durability(pn_terminus, terminus.durable)
    if terminus.expiry_policy is not None:
        lib.pn_terminus_set_expiry_policy(pn_terminus, _BY_EXPIRY_POLICY[terminus.expiry_policy])
    lib.pn_terminus_set_timeout(pn_terminus, terminus.timeout_s)
    if terminus.distribution_mode is not None:
        mode = _BY_DISTRIBUTION_MODE[terminus.distribution_mode]
        lib.pn_terminus_set_distribution_mode(pn_terminus, mode)
    write_symbols(lib.pn_terminus_capabilities(pn_terminus), terminus.capabilities)
    write_map(lib.pn_terminus_filter(pn_terminus), terminus.filters)
    write_map(lib.pn_terminus_properties(pn_terminus), terminus.properties)
    write_symbols(lib.pn_terminus_outcomes(pn_terminus), terminus.outcomes)
