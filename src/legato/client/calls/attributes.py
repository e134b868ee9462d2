"""Settings that are attributes: a misspelt one is an error, not a setting that nobody reads."""

from __future__ import annotations

import re

from legato.likeness import meant


def check_attribute(whose: object, name: str) -> None:
    """See that an attribute may be set: one of our own, a setting, or something that a test replaces.

    Args:
        whose: its class annotates the settings, and has them.

    Raises:
        AttributeError: there is no such setting.
    """
    kind = type(whose)
    if name.startswith("_") or hasattr(kind, name):
        return
    settings = [each for base in kind.__mro__ for each in vars(base).get("__annotations__", ())]
    # Java's spelling, too.
    like = meant(re.sub("(?=[A-Z])", "_", name), settings, count_max=1)
    hint = f"Did you mean {like[0]}?" if like else f"Known are {', '.join(settings)}."
    raise AttributeError(f"A {kind.__name__} has no setting {name!r}. {hint}")
