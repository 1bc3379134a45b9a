"""Start gpuyard on this machine, run a batch on a real model with the `openai` package, print the answers, stop.

Usage: python examples/demo.py [FILE]     (make demo)

FILE is examples/prompts.jsonl unless named. Exits 0 when every row has an answer; else it says what failed and keeps
the log.
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import submit_openai
from openai import DefaultHttpxClient, OpenAI, OpenAIError

READY_SECONDS = 120
STOP_SECONDS = 30
LOG_LINES = 30


class DemoFailed(Exception):
    """The demo cannot go on; the message is for the person who started it."""


@contextmanager
def gpuyard_up(folder: Path) -> Iterator[dict[str, str]]:
    """Run `gpuyard up` with its data in `folder`; give what its ready file says, and stop it at the end.

    Raises DemoFailed when it ends by itself or is not ready in time.
    """
    ready, log = folder / "ready.json", folder / "up.log"
    command = [sys.executable, "-m", "app.cli.main", "up", "--data", folder / "data", "--port", "0"]
    command += ["--runtime", "local", "--ready-file", ready]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)  # noqa: S603 - our own command
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not ready.exists():
            if process.poll() is not None:
                raise DemoFailed(f"gpuyard up ended with exit code {process.returncode}")
            if time.monotonic() > deadline:
                raise DemoFailed(f"gpuyard up was not ready after {READY_SECONDS} seconds")
            time.sleep(0.1)
        yield json.loads(ready.read_text(encoding="utf-8"))
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # its children see its end and stop by themselves
            process.wait()


def demonstrate(prompts: Path, folder: Path) -> None:
    """Run the whole of it. Raises DemoFailed."""
    started = time.monotonic()
    say("starting broker, API, control worker, beat and one GPU worker with a small model")
    with gpuyard_up(folder) as ready:
        say(f"ready after {time.monotonic() - started:.1f} s at {ready['url']}; sending {prompts}")
        # It is on this machine: a proxy of the environment is no way to it.
        directly = DefaultHttpxClient(trust_env=False)
        client = OpenAI(base_url=f"{ready['url']}/v1", api_key=ready["api_key"], http_client=directly)
        batch = submit_openai.run(client, prompts, poll_seconds=0.5)
        answers = submit_openai.answers(client, batch)
        problems = submit_openai.failures(client, batch)
        for line in prompts.read_bytes().splitlines():
            row = json.loads(line)
            if row["custom_id"] in answers:
                print(f"\n{row['custom_id']}  {row['body']['messages'][-1]['content']}")
                print(f"    {' '.join(answers[row['custom_id']].split())}", flush=True)
        print()
    if problems or batch.status != "completed" or not answers:
        raise DemoFailed(f"the batch ended {batch.status}, {len(answers)} rows answered\n" + "\n".join(problems))
    say(f"{len(answers)} rows answered; all stopped after {time.monotonic() - started:.1f} s")


def say(text: str) -> None:
    """Tell the person at the terminal, apart from the answers."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Exit 0 when every row was answered, 1 with the reason and the end of the log otherwise."""
    prompts = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("prompts.jsonl")
    folder = Path(tempfile.mkdtemp(prefix="gpuyard-demo-"))
    try:
        demonstrate(prompts, folder)
    except (DemoFailed, OpenAIError, OSError) as error:
        say(f"demo failed: {error}")
        log = folder / "up.log"
        if log.is_file():
            say("\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]))
            say(f"the whole log: {log}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
