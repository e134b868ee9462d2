"""Counts and lengths of time, written short enough for an axis, a tile or a sentence."""


def human(value: float) -> str:
    """A count short enough for an axis or a tile."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            unit = 1e3 if suffix == "k" else limit
            return f"{value / unit:.3g}{suffix}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


_HOUR_US = 3600e6
_UNITS = (
    (1e3, 1, "µs"),
    (1e6, 1e3, "ms"),
    (120e6, 1e6, "s"),
    (2 * _HOUR_US, 60e6, "min"),
    (96 * _HOUR_US, _HOUR_US, "h"),
    (100 * 24 * _HOUR_US, 24 * _HOUR_US, "d"),
)


def duration(us: float) -> str:
    """A length of time given in microseconds, in the unit that suits it."""
    for limit, divisor, unit in _UNITS:
        if us < limit:
            return f"{us / divisor:.3g} {unit}"
    return f"{us / 86_400e6:,.0f} d"
