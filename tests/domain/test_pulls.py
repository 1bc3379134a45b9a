"""What is known of a pull, in whatever order its reports come."""

import random
from dataclasses import replace

from app.domain.pulls import Pull, PullStatus, after

BEGUN = Pull(1, "ollama@here", "m")


def heard(*told: Pull) -> Pull:
    found: Pull | None = None
    for one in told:
        found = after(found, one) or found
    assert found is not None
    return found


def test_bytes_only_grow_whatever_comes_late_or_twice() -> None:
    told = [replace(BEGUN, completed=n, total=100) for n in (0, 10, 10, 40, 60)]
    for seed in range(20):
        random.Random(seed).shuffle(told)
        found: Pull | None = None
        for one in told:
            before, found = found, after(found, one) or found
            assert found is not None
            assert before is None or found.completed >= before.completed
        assert found is not None
        assert (found.completed, found.total) == (60, 100)


def test_an_end_is_the_last_word() -> None:
    failed = replace(BEGUN, status=PullStatus.FAILED, completed=5, error="no such model")
    found = heard(BEGUN, failed, replace(BEGUN, completed=50), replace(BEGUN, status=PullStatus.PULLED))
    assert found == failed


def test_an_end_that_knows_less_takes_no_bytes_away() -> None:
    found = heard(replace(BEGUN, completed=60, total=100), replace(BEGUN, status=PullStatus.PULLED))
    assert (found.status, found.completed, found.total) == (PullStatus.PULLED, 60, 100)


def test_the_same_again_is_no_news() -> None:
    assert after(BEGUN, BEGUN) is None
