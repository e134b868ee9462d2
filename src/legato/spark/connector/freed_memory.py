"""Memory that glibc's malloc frees in a task, kept for its next frames of some megabytes."""

from __future__ import annotations

import ctypes
import functools

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""As in glibc's `malloc.h`."""
KEPT_BYTES_MAX = 128 << 20
FRAME_BYTES_MAX = 32 << 20
"""What glibc takes at most; larger pieces go back to the system at once."""


@functools.cache
def keep_freed_memory() -> bool:
    """Have this process keep some of the memory that it frees, rather than have it zeroed anew for each frame.

    Returns:
        Whether the C library is one that can be told so: glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, FRAME_BYTES_MAX) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX))
