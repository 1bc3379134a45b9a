"""Rows over time with the faults marked, as SVG by hand."""

from xml.sax.saxutils import escape

from tests.chaos.forms import OF_CONTENTS, OF_WORKERS, Form, Kind
from tests.chaos.happening import Happened, Run, Sample

WIDTH, HEIGHT = 860, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 16, 40, 130
ANSWERED, STORED = "#9db4d6", "#2f6fdf"
SHORT = {
    Kind.RESTART: "killed",
    Kind.DEATH: "dead",
    Kind.FREEZE: "frozen",
    Kind.DRAIN: "drained",
    Kind.THREADS: "no threads",
    Kind.FLUSH: "flushed",
    Kind.KILL: "killed",
    Kind.TERM: "stopped",
    Kind.PAUSE: "frozen",
    Kind.FLIP: "flipped",
    Kind.TRUNCATE: "cut",
    Kind.SWAP: "swapped",
    Kind.DELETE: "deleted",
    Kind.GONE_530: "530",
    Kind.LATE_408: "408",
    Kind.BARRED_403: "403",
    Kind.MOVED_302: "302",
    Kind.PAGE_200: "a page",
    Kind.EMPTY_200: "no choices",
    Kind.COMPRESSED: "compressed",
}
WORKER, PART, CONTENT = "#c0392b", "#d68910", "#8e44ad"


def plot(run: Run, form: Form) -> str:
    """Draw rows that engines were asked for and rows that are stored; a line down for each fault, with its name."""
    longest = max(sample.at for sample in run.samples) - run.began_at
    highest = max(form.rows, *(sample.answered for sample in run.samples))

    def x(at: float) -> float:
        return LEFT + (at - run.began_at) / longest * (WIDTH - LEFT - RIGHT)

    def y(rows: int) -> float:
        return HEIGHT - BOTTOM - rows / highest * (HEIGHT - TOP - BOTTOM)

    def line(points: list[tuple[float, float]], color: str) -> str:
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'

    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    title = f"{form.rows:,} rows: begun (light), stored (dark); faults of workers red, parts orange, contents violet"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" fill="#808080">',
        f'<text x="{LEFT}" y="20" font-size="15">{title}</text>',
    ]
    parts += [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(rows):.1f}" y2="{y(rows):.1f}" stroke="#80808040"/>'
        f'<text x="{LEFT - 6}" y="{y(rows) + 4:.1f}" text-anchor="end">{rows:,}</text>'
        for rows in range(0, form.rows + 1, form.rows // 4)
    ]
    parts += [_mark(met, x(met.at)) for met in run.happened]
    thinned = run.samples[:: max(1, len(run.samples) // 400)] + run.samples[-1:]
    parts += [
        line([(x(found.at), y(_shown(found, answered=True))) for found in thinned], ANSWERED),
        line([(x(found.at), y(_shown(found, answered=False))) for found in thinned], STORED),
    ]
    seconds = next(step for step in (5, 10, 20, 30, 60, 120) if longest / step <= 12)
    for after in range(0, int(longest) + 1, seconds):
        parts.append(f'<text x="{x(run.began_at + after):.1f}" y="{HEIGHT - BOTTOM + 12}">{after} s</text>')
    return "\n".join([*parts, "</svg>", ""])


def _shown(sample: Sample, *, answered: bool) -> int:
    return sample.answered if answered else sample.stored


def _mark(met: Happened, across: float) -> str:
    color = WORKER if met.fault.kind in OF_WORKERS else CONTENT if met.fault.kind in OF_CONTENTS else PART
    name = escape(f"{met.target} {SHORT[met.fault.kind]}")
    turned = f"translate({across + 4:.1f} {HEIGHT - BOTTOM + 22}) rotate(60)"
    line = f'x1="{across:.1f}" x2="{across:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="{color}"'
    return (
        f'<line {line} stroke-dasharray="3 3"/><text transform="{turned}" font-size="10" fill="{color}">{name}</text>'
    )
