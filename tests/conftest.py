"""What holds for all tests: none of Hypothesis' examples is judged by how long it took on a busy machine."""

from hypothesis import settings

settings.register_profile("legato", deadline=None)
settings.load_profile("legato")
