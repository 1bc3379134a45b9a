"""When a row is tried again on the same runtime, and after how long. One `Retries` a row; it does no I/O.

| what came | again? |
|---|---|
| no connection | until the row's time is over |
| 429, 502, 503, 504 | until the row's time is over, not before `Retry-After` |
| the connection was cut while the row ran | 3 times: a row that kills its runtime must not do so for ever |
| 500 | 2 times: three of four runtimes say 500 to a bad request, and vLLM to a dying engine |
| any other answer, time-out, too large | never |
"""

import email.utils
import random
import time
from collections.abc import Mapping

_AGAIN = frozenset({429, 502, 503, 504})
_MAX_CUTS = 3
_MAX_500 = 2
_FIRST_DELAY_SECONDS = 0.2
_LONGEST_DELAY_SECONDS = 2.0


class Retries:
    """Counts one row's tries. Each method gives the seconds to wait before the next try, or None for no more."""

    def __init__(self) -> None:
        self._tries = 0
        self._cuts = 0
        self._answered_500 = 0

    def after_unreachable(self) -> float | None:
        """No connection came about."""
        return self._delay()

    def after_cut(self) -> float | None:
        """The runtime had the row and the connection ended without its answer."""
        self._cuts += 1
        return self._delay() if self._cuts <= _MAX_CUTS else None

    def after_status(self, status: int, headers: Mapping[str, str]) -> float | None:
        """The runtime answered."""
        if status in _AGAIN:
            return self._delay() + _asked_for(headers)
        if status == 500:  # noqa: PLR2004 - HTTP: internal server error
            self._answered_500 += 1
            return self._delay() if self._answered_500 <= _MAX_500 else None
        return None

    def _delay(self) -> float:
        delay = min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2.0 ** min(self._tries, 10))
        self._tries += 1
        # Half of it is chance, so that the rows a runtime refused together do not come back together.
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def _asked_for(headers: Mapping[str, str]) -> float:
    """Read Retry-After as seconds from now: a number or a date, 0 for none and for nonsense."""
    value = headers.get("retry-after", "")
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0
