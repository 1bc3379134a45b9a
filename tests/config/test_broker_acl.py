"""The line that makes an account at the broker: what it names, and what it can never name."""

import pytest

from config.broker_acl import line_of, rules_of, user_of
from config.queues import CONTROL

HASH = "ab" * 32
FORBIDDEN = (
    "eval",
    "script",
    "keys",
    "scan",
    "config",
    "flush",
    "client|list",
    "client|kill",
    "acl",
    "shutdown",
    "debug",
    "monitor",
    "allkeys",
    "allcommands",
)


def test_a_line_names_the_account_begins_anew_and_holds_the_hash_alone() -> None:
    line = line_of("gpu", (HASH,))

    assert line.startswith(f"user {user_of('gpu')} reset #{HASH} on ")
    assert "\n" not in line
    assert ">" not in line


@pytest.mark.parametrize("word", FORBIDDEN)
def test_a_pool_is_never_given_a_command_over_the_whole_broker(word: str) -> None:
    given = [part.strip("()+") for part in " ".join(rules_of("gpu")).split()]

    assert not [part for part in given if part.startswith(word) or part in {"~*", "&*"}]


@pytest.mark.parametrize(
    "word", ["flush", "keys", "scan", "config", "eval ", "acl", "shutdown", "client|kill", "debug"]
)
def test_nor_is_the_control_plane_given_what_ends_or_empties_the_broker(word: str) -> None:
    assert f"+{word}" not in " ".join(rules_of(CONTROL)) + " "


def test_the_number_of_the_database_is_in_the_channels_and_lets_the_account_choose_one() -> None:
    rules = " ".join(rules_of("gpu", db=3))

    assert "&/3.celery.pidbox" in rules
    assert "/0." not in rules
    assert "+select" in rules
    assert "+select" not in " ".join(rules_of("gpu"))


@pytest.mark.parametrize("name", ["gpu ~*", "gpu) +@all (", "*", "GPU", "reply", "celeryev", "celery", ""])
def test_what_is_no_pool_gets_no_account(name: str) -> None:
    with pytest.raises(ValueError, match="pool"):
        rules_of(name)
