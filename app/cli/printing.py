"""What a command prints: its answer on standard output, everything else on standard error.

`--json` leaves nothing but JSON on standard output. Text from outside loses what a terminal would obey.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, and nothing else.")]
MOST = 1_000_000
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, max=MOST, help="So many, newest first.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object a line, and nothing else.")]

NARROW = 60
"""Below so many columns a table is unreadable, and each row becomes a block of lines."""
WIDE = 110
"""From so many columns on, a column of sentences has its place beside the others; below it stands under the first."""
UNBOUNDED = 1000


def print_json(value: Any) -> None:
    """Print the command's one document. ASCII, so that every locale and every pipe takes it."""
    typer.echo(json.dumps(value, indent=2))


def print_json_line(value: Any) -> None:
    """Print one element of a stream, at once."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Tell a person something that is no part of the answer."""
    typer.echo(clean(text), err=True)


def clean(value: object) -> str:
    """Make text from outside harmless: no escape sequences, no line breaks."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(value))


def console() -> Console:
    """Give standard output: as wide as its terminal (or COLUMNS), and unbounded for a pipe or a file."""
    bounded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, emoji=False, width=None if bounded else UNBOUNDED)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, nothing: str, sentences: bool = False
) -> None:
    """Print rows under their column names; `nothing` is said on standard error when there are none.

    A name that ends in `>` is of figures, aligned to the right. The last column takes what width is left;
    with `sentences` it goes below the first one where that is little.
    """
    found = [[clean("-" if cell is None else cell) for cell in row] for row in rows]
    if not found:
        say(nothing)
        return
    out = console()
    names = [name.removesuffix(">") for name in columns]
    if out.width < NARROW:
        for row in found:
            print_fields(dict(zip(names, row, strict=True)))
            typer.echo()
        return
    if sentences and out.width < WIDE:
        names.pop()
        found = [[f"{row[0]}\n  {row[-1]}" if row[-1] else row[0], *row[1:-1]] for row in found]
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name, column in zip(names, columns, strict=False):
        last = name == columns[-1]
        table.add_column(name, justify="right" if column.endswith(">") else "left", no_wrap=not last, overflow="fold")
    for row in found:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print one thing: a line a field, those that are None left out."""
    given = {name: value for name, value in fields.items() if value is not None}
    width = max(map(len, given), default=0)
    for name, value in given.items():
        typer.echo(f"{name:<{width}}  {clean(value)}")
