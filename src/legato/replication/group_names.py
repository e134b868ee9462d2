"""Names of groups of brokers, from which the log's servers make names of streams and files."""

import re

from legato.errors import ConfigError

GROUP_NAME_MAX = 48
"""Servers of the log add to the name, and directories are named so."""

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{GROUP_NAME_MAX - 1}}}")


def check_group(name: str) -> str:
    """The name, if a group may have it.

    Raises:
        ConfigError: it may not; the message says what is accepted.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"the group {name!r} cannot be named so: letters, digits, - and _ are accepted, "
            f"at most {GROUP_NAME_MAX}, the first a letter or a digit"
        )
    return name
