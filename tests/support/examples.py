"""The number of examples of a property test: a fifth before a merge, all of them in `make test-full`."""

from hypothesis import settings

QUICK = "quick"
FULL = "full"
_FULL_EXAMPLES = 100

settings.register_profile(QUICK, deadline=None, max_examples=_FULL_EXAMPLES // 5)
settings.register_profile(FULL, deadline=None, max_examples=_FULL_EXAMPLES)


def examples(full: int) -> int:
    """The number of examples of a test that tries `full` ones under the profile `full` (`--hypothesis-profile`)."""
    return max(1, full * settings().max_examples // _FULL_EXAMPLES)
