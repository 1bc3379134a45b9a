r"""When a row is tried again on the same runtime, and whose doing its reply is. One `Retries` a row; it does no I/O.

A few tries here spare the row a way back through the worker's queue. Whether it runs again after them is the worker's
to decide, which knows how other rows fare (app.worker.verdicts).

| what came | tried again here | then the reply blames |
|---|---|---|
| no connection | 2 times | the runtime |
| 429, 502, 503, 504 | for 30 s, not before `Retry-After` | the runtime |
| 499, 520-523, 525-527, 529, 530 of a proxy * | for 30 s | the runtime |
| 408, 409, 425, 524 of a proxy *: they may be the row's own fault | never | unclear |
| 403, 404 of a proxy * | never | the gateway |
| a redirect that is not followed | never | the runtime |
| 2xx without an answer of the endpoint: HTML, nothing, half of one | never | unclear |
| 401: the key that this worker has for it is wrong, and no row's doing | never | the runtime |
| 500 | 2 times: three of four runtimes say 500 to a bad request, and vLLM to a dying engine | unclear |
| the connection was cut while the row ran | never: the row may have killed the runtime | unclear |
| any other answer, time-out, too large | never | the row |

\* An error whose body has the shape of an engine's own (error_bodies.is_runtimes_own) is the row's answer, whatever its
status.

A longer `Retry-After` is waited for in the worker's queue. Once a try is unclear, the row stays so: a row that kills
its runtime finds nobody there at its next try.
"""

import email.utils
import random
import time
from collections.abc import Mapping

from app.domain.rows import Blame
from executors.error_bodies import is_runtimes_own
from executors.http_wire import Answer

_BUSY = frozenset({429, 502, 503, 504})
_PROXY_BUSY = frozenset({499, 520, 521, 522, 523, 525, 526, 527, 529, 530})
_PROXY_UNCLEAR = frozenset({408, 409, 425, 524})
_PROXY_REFUSES = frozenset({403, 404})
_PROXY = _PROXY_BUSY | _PROXY_UNCLEAR | _PROXY_REFUSES
_BUSY_SECONDS = 30.0
_MAX_UNREACHABLE = 2
_MAX_500 = 2
_FIRST_DELAY_SECONDS = 0.2
_LONGEST_DELAY_SECONDS = 2.0


class Retries:
    """Counts one row's tries. Each method gives the seconds to wait before the next try, or None for no more."""

    def __init__(self, began_at: float) -> None:
        """`began_at` is when the first try was made, on the monotonic clock."""
        self.blame = Blame.ROW
        self.retry_after = 0.0
        """Seconds that the runtime asked for with its last answer."""
        self._began_at = began_at
        self._tries = 0
        self._unreachable = 0
        self._answered_500 = 0

    def after_unreachable(self) -> float | None:
        """No connection came about."""
        self._note(Blame.RUNTIME)
        self._unreachable += 1
        return self._delay() if self._unreachable <= _MAX_UNREACHABLE else None

    def after_cut(self) -> None:
        """The runtime had the row and the connection ended without its answer."""
        self._note(Blame.UNCLEAR)

    def after_answer(self, status: int | None, answer: Answer) -> float | None:
        """Something answered. `status` is what it means for the row; None: that needs no judging any more."""
        is_proxys = status in _PROXY and status == answer.status and not is_runtimes_own(answer.body)
        if is_proxys and status not in _PROXY_BUSY:
            self._note(Blame.UNCLEAR if status in _PROXY_UNCLEAR else Blame.GATEWAY)
            return None
        if status in _BUSY or is_proxys:
            self._note(Blame.RUNTIME)
            self.retry_after = _asked_for(answer.headers)
            delay = self._delay() + self.retry_after
            return delay if time.monotonic() + delay < self._began_at + _BUSY_SECONDS else None
        if status == 500:  # noqa: PLR2004 - HTTP: internal server error
            self._note(Blame.UNCLEAR)
            self._answered_500 += 1
            return self._delay() if self._answered_500 <= _MAX_500 else None
        if status == 401:  # noqa: PLR2004 - HTTP: unauthorized
            self._note(Blame.RUNTIME)
            return None
        self.blame = Blame.ROW
        return None

    def _note(self, blame: Blame) -> None:
        self.retry_after = 0.0
        if self.blame is not Blame.UNCLEAR:
            self.blame = blame

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
