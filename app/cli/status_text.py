"""The whole of `gpuyard status` as something to print."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from app.cli.batch_text import done, note, rows
from app.cli.events import details
from app.cli.figures import duration
from app.cli.printing import clean
from app.cli.workers import AWAY, runtimes, slots, why_no_lease

BAR = 20
NARROW = 100
"""Below so many columns what is only good to know is left out."""
SENTENCES = frozenset({"why no lease", "runtimes", "note", "says"})
"""Columns that give way where there is no room for all; each stays one line."""
STYLES = {
    "active": "green",
    "completed": "green",
    "in_progress": "cyan",
    "failed": "red",
    "expired": "yellow",
    "cancelled": "yellow",
    **dict.fromkeys(AWAY, "bold red"),
}


def render(found: Mapping[str, Any], *, width: int) -> RenderableType:
    """Lay it out for so many columns."""
    narrow = width < NARROW
    parts: list[RenderableType] = [_attention(found)]
    parts += [
        _table("pools", ("pool", "ready", "slots free", "running", "waiting"), map(_pool, found["pools"])),
        _table(
            "workers",
            ("worker", "pool", "state", "seen", "slots", "gpu", *(() if narrow else ("why no lease", "runtimes"))),
            (_worker(worker, narrow=narrow) for worker in found["workers"]),
        ),
        _table(
            "batches",
            ("batch", "status", "", "rows", "failed", *(() if narrow else ("note",))),
            (_batch(batch, narrow=narrow) for batch in found["batches"]),
        ),
        _table(
            "events",
            ("at", "event", "of", *(() if narrow else ("says",))),
            (_event(event, narrow=narrow) for event in found["events"]),
        ),
    ]
    return Group(*parts)


def _attention(found: Mapping[str, Any]) -> Text:
    lines = [clean(line) for line in found["attention"]]
    at = datetime.fromtimestamp(found["at"]).astimezone().strftime("%H:%M:%S")
    if not lines:
        return Text(f"gpuyard at {at}: all is well", style="green")
    return Text("\n".join([f"gpuyard at {at}: look at this", *(f"  ! {line}" for line in lines)]), style="bold yellow")


def _table(title: str, columns: Sequence[str], found: Iterable[Sequence[RenderableType | None]]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, no_wrap=name not in SENTENCES)
    for row in found:
        table.add_row(*(Text("-", style="dim") if cell is None else cell for cell in row))
    return Group(Text(), table) if table.row_count else Text(f"\nno {title}", style="dim")


def _pool(pool: Mapping[str, Any]) -> Sequence[RenderableType | None]:
    return (
        _text(pool["name"] + ("*" if pool["default"] else "")),
        _text(f"{pool['ready']}/{pool['workers']}"),
        _text(f"{pool['free']}/{pool['slots']}"),
        _text(pool["running"]),
        _text(pool["waiting"]),
    )


def _worker(worker: Mapping[str, Any], *, narrow: bool) -> Sequence[RenderableType | None]:
    always = (
        _text(worker["name"]),
        _text(worker["pool"]),
        _styled(worker["state"]),
        _text(duration(worker["seen_seconds"])),
        _text(slots(worker, "batches")),
        _gpus(worker["gpus"]),
    )
    return always if narrow else (*always, _text(why_no_lease(worker)), _text(runtimes(worker)))


def _gpus(gpus: Sequence[Mapping[str, Any]]) -> Text | None:
    """Give how busy the GPUs are, in percent."""
    if not gpus:
        return None
    busy = (gpu["utilization"] for gpu in gpus)
    return Text(" ".join("?" if each is None else f"{each:.0f}%" for each in busy))


def _batch(batch: Mapping[str, Any], *, narrow: bool) -> Sequence[RenderableType | None]:
    counts = batch["request_counts"]
    failed = counts["failed"]
    always = (
        _text(batch["id"]),
        _styled(batch["status"]),
        ProgressBar(total=counts["total"] or 1, completed=done(batch), width=BAR),
        _text(rows(batch)),
        Text(str(failed), style="red") if failed else None,
    )
    return always if narrow else (*always, _text(note(batch)))


def _event(event: Mapping[str, Any], *, narrow: bool) -> Sequence[RenderableType | None]:
    at = datetime.fromtimestamp(event["at"]).astimezone().strftime("%H:%M:%S")
    always = (Text(at), _text(event["type"]), _text(event["subject"]))
    return always if narrow else (*always, _text(details(event)))


def _text(value: object) -> Text | None:
    return None if value is None else Text(clean(value), no_wrap=True, overflow="ellipsis")


def _styled(word: str) -> Text:
    return Text(clean(word), style=STYLES.get(word, ""))
