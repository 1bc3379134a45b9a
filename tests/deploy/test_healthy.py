"""The health check of the images, as the engine runs it: a process with an exit code and one line that says why."""

import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPT = DEPLOY / "healthy.py"
PAGES = {
    "/readyz": (200, b"{}"),
    "/broken": (503, b"{}"),
    "/metrics": (200, b"# HELP silent of it\nsilent 61.5\nother 3\n"),
}


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = PAGES[self.path]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def check(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.strip()


def test_a_page_that_answers_is_health_and_one_that_does_not_is_none(url: str) -> None:
    assert check(f"{url}/readyz") == (0, "")
    code, said = check(f"{url}/broken")
    assert (code, "503" in said) == (1, True)
    code, said = check("http://127.0.0.1:9/metrics")
    assert (code, "refused" in said) == (1, True)


def test_the_proxy_that_docker_gives_each_container_is_not_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert check(f"{url}/readyz") == (0, "")


@pytest.mark.long
def test_beat_without_its_broker_is_one_line() -> None:
    """Kombu tries for six seconds."""
    done = subprocess.run(
        [sys.executable, DEPLOY / "beat_answers.py"],
        env={"PATH": "/usr/bin:/bin", "GPUYARD_BROKER_URL": "redis://127.0.0.1:1/0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("the broker: Error 111")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("figure", "most", "said"),
    [("silent", "62", None), ("silent", "60", "silent is 61.5, above 60"), ("sil", "100", "has no sil")],
)
def test_a_figure_above_its_bound_is_no_health(url: str, figure: str, most: str, said: str | None) -> None:
    code, why = check(f"{url}/metrics", figure, most)
    assert code == (1 if said else 0)
    assert (said or "") in why
