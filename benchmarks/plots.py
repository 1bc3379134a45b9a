"""Bars as SVG, by hand: a plot of seven numbers needs no library."""

from collections.abc import Mapping
from xml.sax.saxutils import escape

WIDTH, BAR, GAP, LABEL, VALUE, TOP = 720, 20, 8, 220, 70, 40


def bars(title: str, values: Mapping[str, float], form: str) -> str:
    """Draw one bar a value, in their order; gpuyard's is darker. Readable on light and on dark pages."""
    largest = max([*values.values(), 1e-9])
    height = TOP + len(values) * (BAR + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13" fill="#808080">',
        f'<text x="0" y="20" font-size="15">{escape(title)}</text>',
    ]
    for place, (name, value) in enumerate(values.items()):
        y = TOP + place * (BAR + GAP)
        length = value / largest * (WIDTH - LABEL - VALUE)
        color = "#2f6fdf" if name.startswith("gpuyard") else "#9db4d6"
        parts += [
            f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{color}"/>',
            f'<text x="{LABEL + length + 6:.1f}" y="{y + 15}">{escape(form.format(value))}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
