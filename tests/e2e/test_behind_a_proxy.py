"""The API behind a real nginx that ends TLS, as docs/operate/tls.md has it: nothing is held back or cut off."""

import json
import os
import subprocess
from collections.abc import Iterator

import httpx
import openai
import pytest
from openai import OpenAI

from tests.authority import Authority, has_openssl, make_authority
from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.submitted import Submitted
from tests.e2e.yard import GPUYARD, Yard, until
from tests.nginx import Front, front, nginx

MIB = 1024 * 1024
LIMIT = 16 * MIB
"""Of a file; nginx's own limit on bodies is 1 MiB unless it is told otherwise."""
program = nginx()
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.proxy,
    pytest.mark.timeout(180),
    pytest.mark.skipif(program is None, reason="there is no nginx (on Debian: apt-get install nginx-light)"),
    pytest.mark.skipif(not has_openssl(), reason="there is no openssl to make certificates with"),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    """Trusted by this process and its children."""
    found = make_authority(tmp_path_factory.mktemp("authority"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(found.ca))
        yield found


@pytest.fixture(scope="module")
def yard(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with Yard(tmp_path_factory.mktemp("yard"), tls="proxy", max_file_bytes=LIMIT, log_json=True) as yard:
        yield yard.start()


@pytest.fixture(scope="module")
def proxy(yard: Yard, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    assert program is not None
    port = httpx.URL(yard.url).port
    assert port is not None
    with front(program, tmp_path_factory.mktemp("nginx") / "front", authority, port) as found:
        yield found


@pytest.fixture(scope="module")
def sdk(yard: Yard, proxy: Front) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{proxy.url}/v1", api_key=yard.ready["api_key"], timeout=60, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def http(yard: Yard, proxy: Front) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {yard.ready['api_key']}"}
    with httpx.Client(base_url=proxy.url, headers=headers, timeout=60) as client:
        yield client


def created(sdk: OpenAI, http: httpx.Client, lines: bytes) -> Submitted:
    file = sdk.files.create(file=("in.jsonl", lines), purpose="batch")
    made = sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    return Submitted(sdk, http, made.id)


def test_a_file_goes_through_whole_both_ways_and_is_put_down_nowhere(sdk: OpenAI, proxy: Front) -> None:
    content = os.urandom(8 * MIB)
    file = sdk.files.create(file=("big.jsonl", content), purpose="batch")
    assert sdk.files.content(file.id).read() == content
    some = sdk.files.content(file.id, extra_headers={"range": "bytes=1000000-1999999"})
    assert (some.response.status_code, some.read()) == (206, content[1_000_000:2_000_000])
    assert proxy.kept() == []


def test_a_file_that_is_too_large_is_refused_by_the_api_in_its_own_words(sdk: OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        sdk.files.create(file=("big.jsonl", bytes(LIMIT + MIB)), purpose="batch")
    assert (caught.value.status_code, caught.value.code) == (413, "file_too_large")


def test_events_come_as_they_happen(sdk: OpenAI, http: httpx.Client) -> None:
    """The batch waits for a worker all the while, so that its stream does not end."""
    batch = created(sdk, http, marked("streamed", 3))
    types: list[str] = []
    with http.stream("GET", f"/v1/batches/{batch.id}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            types += [line.removeprefix("event: ")] if line.startswith("event: ") else []
            if "batch.validated" in types:
                break
    assert "batch.validated" in types
    assert batch.now().status == "in_progress"
    batch.cancel()
    batch.ended("cancelled")


def test_a_batch_runs_on_a_worker_that_knows_the_proxy_alone(
    yard: Yard, proxy: Front, sdk: OpenAI, http: httpx.Client
) -> None:
    worker = yard.worker("far", transport="http", server_url=proxy.url)
    yard.until_present("far")
    batch = created(sdk, http, marked("row", 200))
    batch.ended()
    assert_each_row_once(batch, "row", 200)
    assert "worker.unreachable" not in worker.log.read_text()
    assert worker.stop() == 0


def test_a_command_follows_a_batch_through_it(yard: Yard, proxy: Front, sdk: OpenAI, http: httpx.Client) -> None:
    batch = created(sdk, http, b"no json\n")
    environment = yard.installation.environment() | {
        "GPUYARD_API_KEY": yard.ready["api_key"],
        "GPUYARD_SERVER_URL": proxy.url,
    }
    done = subprocess.run(
        [*GPUYARD, "batch", "watch", batch.id, "--json"],
        env=environment,
        cwd=yard.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["status"] == "failed"


def test_the_log_names_who_called_and_nobody_can_say_to_be_another(yard: Yard, proxy: Front) -> None:
    transport = httpx.HTTPTransport(local_address="127.0.0.3")
    with httpx.Client(base_url=proxy.url.replace("localhost", "127.0.0.1"), transport=transport) as stranger:
        headers = {"x-forwarded-for": "203.0.113.9", "x-request-id": "who-1"}
        assert stranger.get("/v1/batches", headers=headers).status_code == 401

    def line() -> str | None:
        log = (yard.installation.data / "logs" / "api.log").read_text()
        return next((line for line in log.splitlines() if "who-1" in line and "http.answered" in line), None)

    assert json.loads(until(line, "the call is in the log") or "")["client"] == "127.0.0.3"


def test_plain_http_leads_people_to_tls_and_tells_everybody_else(yard: Yard, proxy: Front) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{proxy.plain}") as plain:
        page = plain.get("/")
        assert (page.status_code, page.headers["location"]) == (301, "https://127.0.0.1/")
        answer = plain.get("/v1/batches", headers={"authorization": f"Bearer {yard.ready['api_key']}"})
        assert (answer.status_code, "location" in answer.headers) == (403, False)


def test_the_page_for_people_is_there_and_nothing_leads_away_from_tls(http: httpx.Client) -> None:
    page = http.get("/")
    assert page.status_code == 200
    assert "http://" not in page.text.replace("http://www.w3.org", "")
    for path in ("/v1/batches/", "/v1//batches", "/page"):
        assert http.get(path).status_code == 404
