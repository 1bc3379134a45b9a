"""What pages tell people to type is there: commands with their options, settings, make targets."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer.main

from app.cli.main import app
from config.settings import known_names
from config.sources import PREFIX, RESERVED

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "reference"
FENCED = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
BEFORE = r"(?:^|[;|&(\n]|\bapi|\bgpuyard-worker|\s/opt/gpuyard/bin/)\s*"
"""Where a command begins, in a container too."""
TYPED = re.compile(BEFORE + r"(?:/opt/gpuyard/bin/)?gpuyard ([^|&;<>#'\"\n)]*)")
VARIABLE = re.compile(rf"\b{PREFIX}[A-Z0-9_]*[A-Z0-9]\b(?!\*|…)")
TARGET = re.compile(BEFORE + r"make ([a-z][a-z0-9-]*)")
OF_DEVELOPERS = re.compile(rf"{PREFIX}TEST_\w+")
OF_COMPOSE = set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changelog.d").glob("*.md")]


def code() -> Iterator[tuple[str, str]]:
    """What stands on pages as code to be typed: each with its page's name."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for found in (*FENCED.findall(text), *INLINE.findall(BLOCK.sub("", text))):
            yield page.name, found


@cache
def program() -> Any:
    return typer.main.get_command(app)


def wrong_in(words: list[str]) -> str | None:
    """Say which word of a command is none of ours; None when all are."""
    command, path = program(), "gpuyard"
    is_value = False
    for word in words:
        below = getattr(command, "commands", {})
        if is_value:
            is_value = False
        elif word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            known = {option: part for part in command.params for option in (*part.opts, *part.secondary_opts)}
            if name not in known and name != "--help":
                return f"{path} has no {name}"
            is_value = not equals and name in known and not known[name].is_flag
        elif word in below:
            command, path = below[word], f"{path} {word}"
        elif below and re.fullmatch(r"[a-z][a-z-]+", word):
            return f"{path} has no {word}"
    return None


def test_every_command_that_a_page_names_is_one_with_these_options() -> None:
    found = [
        (page, typed, wrong_in(typed.replace("\\", " ").split()))
        for page, text in code()
        for typed in TYPED.findall(text)
    ]
    assert len(found) > 150
    assert [each for each in found if each[2]] == []


def test_every_variable_that_a_page_names_is_a_setting() -> None:
    known = {PREFIX + name.upper() for name in known_names()} | RESERVED | OF_COMPOSE
    told = {(page.name, name) for page in pages() for name in VARIABLE.findall(page.read_text(encoding="utf-8"))}
    assert {name for _, name in told} > {"GPUYARD_BROKER_URL"}
    assert {each for each in told if each[1] not in known and not OF_DEVELOPERS.fullmatch(each[1])} == set()


def test_every_target_that_a_page_names_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    told = {(page, target) for page, text in code() for target in TARGET.findall(text)}
    assert {target for _, target in told} > {"install", "demo"}
    assert {each for each in told if each[1] not in targets} == set()
