"""Completion windows: how long a batch may take (OPENAI_CONTRACT 1.3: `<n>s|m|h|d`, at most 30 days)."""

import re
from datetime import timedelta

MAX_WINDOW = timedelta(days=30)
_WINDOW = re.compile(r"([1-9][0-9]{0,7})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_window(text: str) -> timedelta:
    """Read a window such as `24h`. Raises ValueError for another form and for more than 30 days."""
    match = _WINDOW.fullmatch(text)
    window = timedelta(seconds=int(match[1]) * _SECONDS[match[2]]) if match else None
    if window is None or window > MAX_WINDOW:
        raise ValueError("use 24h, or a number with s, m, h or d, such as 90m; 30d at most")
    return window
