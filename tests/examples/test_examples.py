"""Every example a page shows is run against a whole installation."""

import json
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PROMPTS = ROOT / "examples" / "prompts.jsonl"
MODEL = "smollm2-135m-instruct"


def ids(path: Path) -> list[str]:
    return [json.loads(line)["custom_id"] for line in path.read_bytes().splitlines()]


def ended(url: str, key: str, batch_id: str) -> Any:
    deadline = time.monotonic() + 60
    while True:
        batch = httpx.get(f"{url}/v1/batches/{batch_id}", headers={"Authorization": f"Bearer {key}"}).json()
        if batch["status"] in {"completed", "failed", "cancelled", "expired"}:
            return batch
        assert time.monotonic() < deadline, batch
        time.sleep(0.1)


def test_the_openai_package_prints_an_answer_for_each_row_in_order(installation: Any) -> None:
    run = installation.run(sys.executable, "examples/submit_openai.py", "examples/prompts.jsonl")
    assert run.returncode == 0, run.stderr
    assert [line.partition(":")[0] for line in run.stdout.splitlines()] == ids(PROMPTS)


def test_the_openai_package_says_which_line_was_wrong(installation: Any, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_bytes(PROMPTS.read_bytes() + b"no json\n")
    run = installation.run(sys.executable, "examples/submit_openai.py", wrong)
    assert run.returncode == 1
    assert "line 13" in run.stderr


def test_plain_http_enqueues_a_batch_and_prints_its_id(installation: Any) -> None:
    run = installation.run(sys.executable, "examples/enqueue_batch.py", MODEL, "One?", "Two — zwei?")
    assert run.returncode == 0, run.stderr
    batch = ended(installation.url, installation.api_key, run.stdout.strip())
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 2, "completed": 2, "failed": 0}


@pytest.mark.parametrize("example", ["submit_openai.py", "enqueue_batch.py"])
def test_an_example_that_is_told_nothing_says_how_it_is_used(installation: Any, example: str) -> None:
    run = installation.run(sys.executable, f"examples/{example}")
    assert run.returncode == 1
    assert run.stderr.startswith("Usage: ")
    assert len(run.stderr.splitlines()) == 1


def test_a_folder_gets_its_results_once(installation: Any, tmp_path: Path) -> None:
    shutil.copy(PROMPTS, tmp_path / "first.jsonl")
    assert installation.run("examples/folder.sh", tmp_path).returncode == 0
    assert ids(tmp_path / "first.out.jsonl") == ids(PROMPTS)
    again = installation.run("examples/folder.sh", tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.jsonl", "first.out.jsonl"]


def test_the_cron_line_of_the_page_works_as_cron_runs_it(installation: Any, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operate" / "submit.md").read_text(encoding="utf-8")
    found = re.search(r"^\*/10 \* \* \* \* (.+)$", page, re.MULTILINE)
    assert found
    clone, batches = tmp_path / "clone", tmp_path / "batches"
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "activate").write_text(f'PATH="{installation.path}"\n')
    (clone / "examples").symlink_to(ROOT / "examples")
    batches.mkdir()
    shutil.copy(PROMPTS, batches / "night.jsonl")
    line = found[1].replace("/srv/gpuyard", str(clone)).replace("/srv/batches", str(batches))
    assert "%" not in line, "cron turns it into a line feed"
    run = installation.run("/bin/sh", "-c", line)
    assert run.returncode == 0, run.stderr
    assert ids(batches / "night.out.jsonl") == ids(PROMPTS)


def test_the_demo_s_prompts_fit_the_small_model() -> None:
    rows = [json.loads(line) for line in PROMPTS.read_bytes().splitlines()]
    assert {row["body"]["model"] for row in rows} == {MODEL}
    assert len(ids(PROMPTS)) == len(set(ids(PROMPTS)))
    assert all(len(json.dumps(row["body"]["messages"])) < 300 and row["body"]["max_tokens"] <= 64 for row in rows)
