"""Write the generated pages of docs/reference, or check that they are what the code says.

Usage: python docs/_generate.py [--check]

Each page has one function that returns its whole text. Nothing here knows a fact of its own: pages are made from the
settings classes, the event names, the tables of metrics and parameters, the OpenAPI document and the commands.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import typer

from app.api import access
from app.api.main import create_app
from app.cli.errors import MEANINGS
from app.cli.main import app as cli
from app.db.metrics import LIMIT, WORKERS_TOLD
from app.domain import events, metrics
from app.domain.metrics import Source
from app.domain.parameter_table import TABLE, Parameter, Support
from app.services.metrics import KEEP_SECONDS
from config import reference
from config.settings import ServerSettings

REFERENCE = Path(__file__).parent / "reference"

COMPLETION = ("install_completion", "show_completion")
HEAD = "<!-- Written by `make docs`. Change the code, not this page. -->\n\n"


def settings_page() -> str:
    """Every setting of every process, in the order of the classes."""
    lines = [
        "# Settings",
        "",
        "Command line > environment > file > default. The file is `gpuyard.toml`: the one named by `--config`, else",
        "`/etc/gpuyard/gpuyard.toml`, else `~/.config/gpuyard/gpuyard.toml`; its keys are the names of this table.",
        "Read once, when a process starts; an unknown name is an error that says the nearest known one.",
        "`gpuyard config show` prints each value and where it came from.",
        "",
        "| setting | environment | default | read by | meaning |",
        "|---|---|---|---|---|",
    ]
    for row in reference.rows():
        default = f"`{row.default}`" if row.default else ""
        cells = (f"`{row.name}`", f"`{row.variable}`", default, ", ".join(row.roles), row.description)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return HEAD + "\n".join(lines) + "\n"


def events_page() -> str:
    """Every event's name and meaning."""
    lines = [
        "# Events",
        "",
        "An event is written in the transaction that made it happen. `gpuyard events -f` and `GET /v1/events` show",
        "them, each with `seq`, `at`, `type`, `subject` (the id of what it is about), `actor` and `data`.",
        "",
        "| type | says |",
        "|---|---|",
        *(f"| `{name}` | {meaning} |" for name, meaning in events.MEANINGS.items()),
    ]
    return HEAD + "\n".join(lines) + "\n"


def metrics_page() -> str:
    """Every metric, by the process that shows it."""
    lines = [
        "# Metrics",
        "",
        "What `GET /metrics` of the API, and the `metrics_port` of GPU workers and control workers, show in the text",
        "format of Prometheus; [observability](../operate/observability.md) sets it up. No label names an org, a user,",
        "a batch or a model. Each page also has `process_*`: CPU, memory and open files of its process.",
        "",
        "* Figures *read from the database* are of the whole service and the same on each API process: take their",
        f"  `max`, not their sum. They are {KEEP_SECONDS:g} s old at most. A reading looks at {LIMIT:,} rows of each",
        f"  kind at most. It shows GPUs, disks and runtimes of {WORKERS_TOLD} workers, those that are known longest.",
        "* All others are the process's own: add them up.",
    ]
    titles = {
        Source.DATABASE: "Of the whole service (API; read from the database)",
        Source.API: "Of an API process",
        Source.CONTROL: "Of an API process or a control worker",
        Source.WORKER: "Of a GPU worker",
    }
    for source, title in titles.items():
        lines += ["", f"## {title}", "", "| metric | type | labels | says |", "|---|---|---|---|"]
        for metric in metrics.METRICS:
            if metric.source is source:
                labels = ", ".join(f"`{label}`" for label in metric.labels)
                lines.append(f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.says} |")
    return HEAD + "\n".join(lines) + "\n"


def api_page() -> str:
    """Every route with its scopes, in the order of the OpenAPI document."""
    document = create_app(ServerSettings()).openapi()
    lines = [
        "# The API",
        "",
        "Errors have one shape everywhere, OpenAI's: an object `error` with `message`, `type`, `param` and `code`. A",
        "key goes into `Authorization: Bearer gk-…`; any one of the named scopes opens a route. A running server gives",
        "the whole document at `/openapi.json`.",
    ]
    tag = None
    for route, scopes in access.ACCESS.items():
        method, path = route.replace(":path}", "}").split(" ", 1)
        operation = document["paths"].get(path, {}).get(method.lower())
        if operation is None:
            continue
        if (now := operation.get("tags", ["other"])[0]) != tag:
            tag = now
            lines += ["", f"## {tag.capitalize()}", "", "| route | scopes | does | parameters |", "|---|---|---|---|"]
        says = (
            operation.get("description", operation["summary"]).split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        )
        asks = ", ".join(f"`{part['name']}`" for part in operation.get("parameters", []) if part["in"] != "path")
        lines.append(f"| `{method} {path}` | {', '.join(scopes) or 'open'} | {says} | {asks} |")
    return HEAD + "\n".join(lines) + "\n"


def cli_page() -> str:
    """Every command with its options, and the exit codes they share."""
    lines = [
        "# The command line",
        "",
        "`gpuyard COMMAND --help` says the same. Answers go to standard output, all else to standard error. `--json`",
        "leaves one JSON document (of a stream: one a line) and nothing else on standard output. `NO_COLOR=1` takes",
        "colours away; off a terminal there are none. `gpuyard --install-completion` has the shell complete commands",
        "and options.",
        "",
        "## Exit codes",
        "",
        "The same of every command.",
        "",
        "| code | means |",
        "|---|---|",
        *(f"| {int(code)} | {meaning} |" for code, meaning in MEANINGS.items()),
    ]
    for words, command in _commands(typer.main.get_command(cli)):
        lines += ["", f"## `{' '.join(words)}`", "", _first_part(command.help or "")]
        options = [part for part in command.params if part.name not in {"help", *COMPLETION}]
        if options:
            lines += ["", "| argument or option | means |", "|---|---|"]
            lines += [
                f"| {_names(part)} | {(getattr(part, 'help', None) or '').replace('|', chr(92) + '|')} |"
                for part in options
            ]
    return HEAD + "\n".join(lines) + "\n"


def _commands(command: Any, words: tuple[str, ...] = ("gpuyard",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Give a command and those below it, in the order of `--help`."""
    if getattr(command, "invoke_without_command", False) or not hasattr(command, "commands"):
        yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, (*words, name))


def _first_part(text: str) -> str:
    """A command's help without what the table of exit codes says."""
    parts = (" ".join(part.split()) for part in text.split("\n\n"))
    return "\n\n".join(part for part in parts if part and not part.startswith("Exit code: 0 completed"))


def _names(part: Any) -> str:
    if part.param_type_name == "argument":
        return f"`{part.metavar or part.name.upper()}`"
    return ", ".join(f"`{name}`" for name in [*part.opts, *part.secondary_opts])


def parameters_page() -> str:
    """Every parameter of every endpoint, and what each kind of runtime does with it."""
    lines = [
        "# Parameters",
        "",
        "What each kind of runtime does with each parameter of a row's body; [runtimes](runtimes.md), section 6,",
        "says what follows from it. `vLLM` is any server with OpenAI's API, `local` is llama.cpp; the `fake`",
        "runtime and an executor of your own take everything.",
        "",
        "* **native**: the runtime gets it as it stands in the file, and judges it.",
        "* **as** `words`: the runtime gets it under these words of its own.",
        "* **no meaning**: accepted everywhere, for it changes no answer. vLLM and llama.cpp get it with the rest.",
        "* **unsupported**: the runtime would ignore or refuse it. Such a row is not for it.",
        "",
        "The last column holds values that ask for nothing, beside null. *Varies*: a runtime of a kind that takes",
        "it may not, by its version or its set-up. A name with a dot is a form of a parameter: `input.tokens` is",
        "an `input` of token ids, `prompt.list` several prompts in one row, `messages.image_url` an image that",
        "somebody would have to fetch (one in a `data:` URL is native). A parameter that stands in no table is",
        "native on all but Ollama. *Crosses*: it reaches across requests and is left out, unless the setting",
        "`cross_request_parameters` says otherwise ([runtimes](runtimes.md), section 6).",
    ]
    for endpoint, known in TABLE.items():
        lines += ["", f"## `{endpoint}`", "", "| parameter | vLLM | Ollama | local | asks for nothing as |"]
        lines.append("|---|---|---|---|---|")
        lines += [_parameter_row(parameter) for parameter in known.values()]
    return HEAD + "\n".join(lines) + "\n"


def _parameter_row(parameter: Parameter) -> str:
    cells = [
        f"`{parameter.name}`" + (" *varies*" if parameter.varies else "") + (" *crosses*" if parameter.crosses else "")
    ]
    cells += [_support(parameter.support[kind]) for kind in ("vllm", "ollama", "local")]
    cells.append(", ".join(f"`{json.dumps(value)}`" for value in parameter.plain))
    return "| " + " | ".join(cells) + " |"


def _support(support: Support) -> str:
    return f"as `{support.words}`" if support.words else support.way.value


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "events.md": events_page,
    "metrics.md": metrics_page,
    "parameters.md": parameters_page,
    "api.md": api_page,
    "cli.md": cli_page,
}


def main() -> int:
    """Write every page, or with --check name those that differ. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Write or check the generated pages of docs/reference.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a page is out of date")
    check: bool = parser.parse_args().check
    stale = []
    for name, text_of in PAGES.items():
        page = REFERENCE / name
        text = text_of()
        if page.is_file() and page.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            page.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"docs/reference/{name}: {'is out of date, run make docs' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
