"""Figures as people read them: durations, moments, sizes, shares."""

from datetime import datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_STEP = 1024


def duration(seconds: float | None) -> str | None:
    """Write a time span in its two largest units: `42s`, `3m 10s`, `2h 05m`, `4d 01h`."""
    if seconds is None:
        return None
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR:02}h"


def moment(unix_seconds: float | None) -> str | None:
    """Write a point in time in this machine's zone."""
    if unix_seconds is None:
        return None
    return datetime.fromtimestamp(unix_seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def size(count: float | None) -> str | None:
    """Write bytes: `512 B`, `3.4 GiB`."""
    if count is None:
        return None
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < _STEP:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= _STEP
    return f"{count:.1f} TiB"
