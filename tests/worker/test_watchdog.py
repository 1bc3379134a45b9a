"""The last resort ends a process whatever hangs in it, who reads its log included."""

import os
import subprocess
import sys

_HANGS = """
import os, time
from app.worker.watchdog import watchdog
from config.logging import configure
configure("worker", level="INFO", as_json=False)
os.set_blocking(2, False)
try:
    while True:
        os.write(2, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(2, True)
watchdog(0.2, 75)
time.sleep(60)
"""


def test_it_ends_a_process_whose_log_nobody_reads() -> None:
    reads, writes = os.pipe()
    with subprocess.Popen([sys.executable, "-c", _HANGS], stderr=writes) as process:
        os.close(writes)
        try:
            assert process.wait(30) == 75
        finally:
            process.kill()
            os.close(reads)
