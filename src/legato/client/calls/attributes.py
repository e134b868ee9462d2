"""Settings that are attributes: a misspelt one is an error, not a setting that nobody reads."""

from __future__ import annotations

import re
from collections.abc import Sequence

from legato.likeness import meant


def check_attribute(whose: object, name: str, settings: Sequence[str]) -> None:
    """See that an attribute may be set.

    Args:
        settings: the names of those that an application sets.

    Raises:
        AttributeError: there is no such setting.
    """
    if name in settings or name.startswith("_"):
        return
    # Java's spelling, too.
    like = meant(re.sub("(?=[A-Z])", "_", name), settings, count_max=1)
    hint = f"Did you mean {like[0]}?" if like else f"Known are {', '.join(settings)}."
    raise AttributeError(f"A {type(whose).__name__} has no setting {name!r}. {hint}")
