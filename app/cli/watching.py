"""Following a batch to its end: a live line on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from app.cli.batch_text import Batch, done, has_ended, note, progress
from app.cli.errors import CliError, ExitCode
from app.cli.printing import clean, say
from app.client.errors import ControlPlaneError, TryLater
from app.client.messages import messages
from app.client.public import PublicApi, path_to

FIRST_LOOKS = 20
QUICK_SECONDS = 0.3
LOOK_SECONDS = 1.0
"""The first looks come quickly, for small batches."""
AWAY_SECONDS = 600.0
"""A server that does not answer for so long ends the watching; the batch goes on when it is back."""
AWAY = "the server does not answer, and is asked again"
LINE_SECONDS = 15.0


class Show(Protocol):
    """What shows a batch that is followed."""

    def __call__(self, batch: dict[str, Any]) -> None:
        """Show it as it is now."""

    def away(self) -> None:
        """Show that the server does not answer: what was shown may be old."""


def watch(api: PublicApi, batch_id: str, show: Show) -> dict[str, Any]:
    """Follow a batch and give it as it ended. Raises app.client.errors; Ctrl-C becomes CliError, exit code 130."""
    try:
        batch = None
        for batch in changes(api, batch_id, show.away):
            show(batch)
    except KeyboardInterrupt:
        raise CliError(
            f"{batch_id} goes on without this command: `gpuyard batch watch {batch_id}` comes back to it, "
            f"`gpuyard batch cancel {batch_id}` ends it",
            exit_code=ExitCode.INTERRUPTED,
        ) from None
    if batch is None:
        raise CliError(f"{batch_id} was not looked at")
    return batch


def changes(api: PublicApi, batch_id: str, away: Callable[[], None]) -> Iterator[dict[str, Any]]:
    """Give the batch whenever it has changed, its end last: as the server sends it, else by asking again and again.

    A server without streams, one that has no room for another, or a proxy that holds them back is asked from then on.
    """
    streamed = True
    for batch in looks(api, batch_id, away):
        yield batch
        while streamed and not has_ended(batch):
            streamed = False
            with suppress(ControlPlaneError, ValueError):
                for batch in snapshots(api, batch_id):  # noqa: PLW2901 - the newest is the one that counts
                    streamed = True
                    yield batch
        if has_ended(batch):
            return


def snapshots(api: PublicApi, batch_id: str) -> Iterator[dict[str, Any]]:
    """Give the batch as one stream brings it; the stream may end before the batch does. Raises app.client.errors."""
    path = path_to("v1", "batches", batch_id, "events")
    with api.stream(path, once_only=True, show="batch") as response:
        for message in messages(response.iter_lines()):
            if message.type == "batch":
                yield message.data


def looks(api: PublicApi, batch_id: str, away: Callable[[], None] = lambda: None) -> Iterator[dict[str, Any]]:
    """Give the batch again and again, its end last; `away` is called whenever there is no answer."""
    answered = time.monotonic()
    for number in range(2**62):
        try:
            batch: dict[str, Any] = api.get(path_to("v1", "batches", batch_id))
        except TryLater:
            if time.monotonic() - answered > AWAY_SECONDS:
                raise
            away()
        else:
            answered = time.monotonic()
            yield batch
            if has_ended(batch):
                return
        time.sleep(QUICK_SECONDS if number < FIRST_LOOKS else LOOK_SECONDS)


@contextmanager
def screen() -> Iterator[Show]:
    """Give what shows a batch on standard error, as fits what that is."""
    out = Console(stderr=True, highlight=False, emoji=False)
    if not out.is_terminal:
        yield _Lines()
        return
    with Live(console=out, transient=True, refresh_per_second=8) as live:
        yield _Screen(live)


class _Screen:
    """A bar, and below it what is worth knowing."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._bar = Progress(BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("rows"), expand=True)
        self._task = self._bar.add_task("rows", total=None)
        self._status = ""

    def __call__(self, batch: Batch) -> None:
        counts = batch["request_counts"]
        self._bar.update(self._task, completed=done(batch), total=counts["total"] or None)
        self._status = str(batch["status"])
        words = Text().append(f"{self._status} ", style="bold")
        if counts["failed"]:
            words.append(f"{counts['failed']} failed ", style="red")
        words.append(clean(note(batch)))
        self._update(words)

    def away(self) -> None:
        self._update(Text().append(f"{self._status} ", style="bold").append(AWAY, style="red"))

    def _update(self, words: Text) -> None:
        words.append(" · Ctrl-C leaves it running", style="dim")
        self._live.update(Group(self._bar, words))


class _Lines:
    """A line when the status or the reason to wait changes, and every 15 s when rows were done."""

    def __init__(self) -> None:
        self._said: tuple[object, ...] = ()
        self._rows = -1
        self._at = 0.0

    def __call__(self, batch: Batch) -> None:
        now = time.monotonic()
        state = (batch["status"], (batch.get("gpuyard") or {}).get("waiting_reason"))
        moved = done(batch) != self._rows and now - self._at >= LINE_SECONDS
        if not has_ended(batch) and (state != self._said or moved):
            say(progress(batch))
            self._said, self._rows, self._at = state, done(batch), now

    def away(self) -> None:
        if self._said != (AWAY,):
            say(AWAY)
            self._said = (AWAY,)
