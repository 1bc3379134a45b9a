"""The page in a real browser, on a real yard: what a person sees, types and saves."""

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.schemas.workers import GpuSample, HostSample
from tests.damaged import flip
from tests.dashboard.browser import NEEDS, Browser, browsing, saved
from tests.e2e.yard import Yard, until
from tests.hands import hello

pytestmark = [
    pytest.mark.page,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (shutil.which("chromium") and shutil.which("chromedriver")), reason=NEEDS),
]
EVIL = "<img src=x onerror=window.broken=1><script>window.broken=2</script>"
NAME = "Fragen über 🦜 \N{EN DASH} 質問.jsonl"
TAB = "\ue004"


@pytest.fixture(scope="module")
def browser(yard: Yard, downloads: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(yard.url, tmp_path_factory.mktemp("profile"), downloads) as running:
        yield running


@pytest.fixture
def page(browser: Browser, yard: Yard) -> Browser:
    """The page, signed in as an admin."""
    return browser.signed_in(yard.ready["api_key"])


def rows(count: int, **asked: Any) -> bytes:
    lines = [
        {
            "custom_id": f"row-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "mock", "messages": [{"role": "user", "content": f"{number}"}], **asked},
        }
        for number in range(count)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def send(page: Browser, folder: Path, name: str, content: bytes) -> str:
    """Send a file by hand; gives the selector of its batch's card."""
    file = folder / name
    file.write_bytes(content)
    page.one("#files").send_keys(str(file))
    page.one("#submit-form button").click()
    says = page.until_reads("#submit-says", name, "is sent: batch_")
    return card(says.rpartition(" ")[2])


def card(batch_id: str) -> str:
    return f"#batches li[data-key='{batch_id}']"


def key(yard: Yard, *scopes: str) -> str:
    made = yard.http.post("/v1/tokens", json={"name": "-".join(scopes), "scopes": list(scopes)})
    secret: str = made.raise_for_status().json()["secret"]
    return secret


def test_a_key_is_asked_for_and_kept_in_this_tab_only(browser: Browser, yard: Yard) -> None:
    browser.opened()
    assert not browser.one("#yard").is_displayed()
    browser.one("#key").send_keys("gk-wrong\n")
    browser.until_reads("#key-problem", "API key")
    browser.one("#key").clear()
    browser.one("#key").send_keys(yard.ready["api_key"], "\n")
    browser.until_reads("#workers", "gpu-box-1", "1 of 1 slots free")
    browser.until_reads("#pools", "the default pool", "1 worker")
    assert browser.run("return [document.cookie, localStorage.length, sessionStorage.length]") == ["", 0, 1]
    assert yard.ready["api_key"] not in browser.driver.current_url
    browser.driver.refresh()
    browser.until_reads("#workers", "gpu-box-1")
    browser.one("#leave").click()
    browser.until_seen("#key")
    assert browser.run("return sessionStorage.length") == 0
    assert browser.all("#workers li") == []


def test_signing_in_twice_at_once_leaves_nobody_asking_after_signing_out(browser: Browser, yard: Yard) -> None:
    """As by pressing Enter twice. Pollers behind the page would go on without a key, and sign the next person out."""
    browser.opened()
    browser.one("#key").send_keys(yard.ready["api_key"])
    browser.run("const form = document.getElementById('key-form'); form.requestSubmit(); form.requestSubmit();")
    browser.until_reads("#workers", "gpu-box-1")
    browser.one("#leave").click()
    browser.run(
        """
        window.asked = 0;
        window.fetch = () => { window.asked += 1; return Promise.reject(new Error("nobody is signed in")); };
        document.dispatchEvent(new Event("visibilitychange"));  // whoever polls looks at once
        """
    )
    assert browser.run("return window.asked") == 0
    assert browser.text("#key-problem") == ""


def test_signing_out_takes_along_all_that_the_key_let_be_seen(page: Browser, yard: Yard, tmp_path: Path) -> None:
    page.until_reads("#pool", "lab")
    batch = page.until_seen(send(page, tmp_path, "mine.jsonl", rows(400, user="latency_ms=1000")))
    batch_id = str(batch.get_attribute("data-key"))
    page.one(f"{card(batch_id)} [data-cancel]").click()
    page.until_seen("#cancel-dialog")
    page.run(
        """
        const fetched = window.fetch, later = (answer) => new Promise((go) => held.push(() => go(answer)));
        window.held = [];
        window.fetch = (...asked) => fetched(...asked).then(later);
        """
    )
    until(lambda: page.run("return held.length") >= 3, "answers are on their way")
    page.run("document.getElementById('leave').click(); held.forEach((go) => go());")
    page.driver.execute_async_script("setTimeout(arguments[0], 300)")  # the browser has read them by then
    assert page.run("return document.getElementById('cancel-dialog').open") is False
    left = "return [...document.querySelectorAll('#yard ul li, #pool option, #news, #submit-says')]"
    assert page.run(f"{left}.map((each) => each.textContent).join('')") == "the default pool"
    yard.sdk.batches.cancel(batch_id)


def test_a_file_is_sent_and_followed_and_its_results_are_saved(page: Browser, downloads: Path, tmp_path: Path) -> None:
    content = rows(30, user="latency_ms=300") + rows(6, user="status=400").replace(b"row-", b"bad-")
    batch = send(page, tmp_path, NAME, content)
    page.until_reads(batch, NAME, "completed", "36 rows: 30 answered, 6 failed")
    page.until_reads(f"{batch} [data-errors]", "6 \N{MULTIPLICATION SIGN} 400")
    page.one(f"{batch} [data-results]").click()
    batch_id = str(page.one(batch).get_attribute("data-key"))
    lines = [json.loads(line) for line in saved(downloads, f"{batch_id}.jsonl").splitlines()]
    assert [line["custom_id"] for line in lines] == [json.loads(row)["custom_id"] for row in content.splitlines()]
    page.one(f"{batch} [data-failed]").click()
    assert saved(downloads, f"{batch_id}-failed.jsonl").count(b"\n") == 6


def test_failed_rows_run_again_and_the_results_of_both_are_saved(
    page: Browser, downloads: Path, tmp_path: Path
) -> None:
    bad = re.sub(rb'"content": "(\d)"', rb'"content": "[[bad-\1]]"', rows(4, user="status=400;times=1"))
    first = send(page, tmp_path, "again.jsonl", rows(4) + bad.replace(b"row-", b"bad-"))
    page.until_reads(first, "completed", "4 answered, 4 failed")
    assert not page.one(f"{first} [data-merged]").is_displayed()
    page.one(f"{first} [data-retry]").click()
    says = page.until_reads(f"{first} [data-text='says']", "Its failed rows run again: batch_")
    again = card(says.rpartition(" ")[2])
    first_id = str(page.one(first).get_attribute("data-key"))
    page.until_reads(again, "completed", "4 rows: 4 answered", f"runs rows of {first_id} again")
    assert not page.one(f"{again} [data-retry]").is_displayed()
    page.until_reads(first, "run again by batch_")
    page.one(f"{first} [data-merged]").click()
    lines = [json.loads(line) for line in saved(downloads, f"{first_id}-with-retries.jsonl").splitlines()]
    assert [line["response"]["status_code"] for line in lines] == [200] * 8


def test_progress_is_shown_and_a_batch_is_cancelled_by_keyboard_after_a_question(page: Browser, tmp_path: Path) -> None:
    batch = send(page, tmp_path, "long.jsonl", rows(400, user="latency_ms=1000"))
    page.until_reads(batch, "of 400 rows", "1 worker", "rows/s", "left")
    assert 0 < float(page.run("return document.querySelector(arguments[0]).value", f"{batch} progress")) < 1
    page.picture("page")
    page.until_reads("#news", "long.jsonl")
    page.run("document.querySelector(arguments[0]).focus()", f"{batch} [data-cancel]")
    page.press("\n")
    page.until_seen("#cancel-dialog")
    page.picture("page-cancel")
    page.press("\n")  # what has the focus lets it run
    until(lambda: not page.one("#cancel-dialog").is_displayed(), "the dialog is closed")
    page.press("\n")  # the focus is where it was
    page.until_reads("#cancel-dialog", "long.jsonl", "400 rows")
    page.press(TAB)
    page.press("\n")
    page.until_reads(f"{batch} .badge", "cancel")
    page.until_reads(f"{batch} .badge", "cancelled")


def test_a_file_that_is_no_batch_is_told_why(page: Browser, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_bytes(b"just text\n")
    page.one("#files").send_keys(str(tmp_path / "notes.jsonl"))
    page.one("#submit-form button").click()
    page.until_reads("#submit-says", "notes.jsonl is not sent", "first line")
    twice = send(page, tmp_path, "twice.jsonl", rows(1) * 2)
    page.until_reads(twice, "failed", "line 2")


def test_a_file_that_is_dropped_anywhere_is_ready_to_be_sent(page: Browser) -> None:
    drop = """
        const transfer = new DataTransfer();
        transfer.items.add(new File([arguments[0]], "dropped.jsonl"));
        document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
    """
    page.run(drop, rows(2).decode())
    page.press("\n")  # the focus is on Send
    page.until_reads("#submit-says", "dropped.jsonl is sent")
    page.until_reads("#batches li", "dropped.jsonl", "2 rows: 2 answered")


def test_text_of_others_is_shown_as_text(page: Browser, yard: Yard, tmp_path: Path) -> None:
    gpu = GpuSample(index=0, name="Test GPU", memory_total=80 * 2**30, memory_used=60 * 2**30, utilization=97.0)
    quiet = GpuSample(index=1, name=EVIL, error=EVIL)
    word = hello("lab-1", pool="lab").model_copy(update={"sample": HostSample(gpus=[gpu, quiet], load1=1, cpus=8)})
    headers = {"authorization": f"Bearer {yard.ready['worker_key']}"}
    yard.http.post("/workers/register", json=word.model_dump(mode="json"), headers=headers).raise_for_status()
    page.until_reads("#workers", f"GPU 1: {EVIL}", "97 % busy", "60 GiB of 80 GiB")
    raw = json.dumps({"error": {"message": EVIL, "type": EVIL, "code": None}}).replace("\\", "\\\\")
    page.run("document.getElementById('workers').scrollIntoView()")
    page.picture("page-workers")
    uploaded = yard.sdk.files.create(file=("i.jsonl", rows(3, user=f"status=400;raw={raw}")), purpose="batch")
    made = yard.sdk.batches.create(
        input_file_id=uploaded.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"file_name": EVIL, EVIL[:60]: "\u202eevil\u200b" + "w" * 300},
    )
    page.until_reads(card(made.id), EVIL, "failed")
    page.until_reads(f"{card(made.id)} [data-errors]", EVIL)
    name = EVIL.replace("/", "\N{DIVISION SLASH}") + ".jsonl"
    page.until_reads(send(page, tmp_path, name, rows(1)), name)
    assert page.all("main img, main script") == []
    assert page.run("return window.broken ?? null") is None
    with page.sized(320, 640):
        assert page.run("return document.documentElement.scrollWidth") <= 320


def test_each_key_is_told_what_it_may_not_see_or_do(browser: Browser, yard: Yard, tmp_path: Path) -> None:
    browser.signed_in(key(yard, "worker"))
    for section in ("batches", "workers", "pools"):
        browser.until_reads(f"#{section} [data-problem]", "see this: this key has the scope worker", "needs read")
    browser.signed_in(key(yard, "read"))
    browser.until_reads("#workers", "gpu-box-1")
    (tmp_path / "one.jsonl").write_bytes(rows(1))
    browser.one("#files").send_keys(str(tmp_path / "one.jsonl"))
    browser.one("#submit-form button").click()
    browser.until_reads("#submit-says", "one.jsonl is not sent", "needs submit")


def test_a_key_that_is_revoked_signs_the_page_out(browser: Browser, yard: Yard) -> None:
    made = yard.http.post("/v1/tokens", json={"name": "short", "scopes": ["read"]}).json()
    browser.signed_in(made["secret"])
    yard.http.delete(f"/v1/tokens/{made['id']}").raise_for_status()
    browser.until_seen("#key")
    assert browser.text("#key-problem") != ""


def test_results_that_break_off_because_they_are_damaged_are_told_so_at_once(
    page: Browser, yard: Yard, tmp_path: Path
) -> None:
    body = {"choices": [{"message": {"role": "assistant", "content": "x" * 500_000}}]}
    batch = send(page, tmp_path, "broken.jsonl", rows(5, user=f"raw={json.dumps(body)}"))
    page.until_reads(batch, "5 rows: 5 answered")
    result = yard.sdk.batches.retrieve(str(page.one(batch).get_attribute("data-key"))).output_file_id
    with closing(sqlite3.connect(yard.installation.data / "gpuyard.db")) as database:
        (blob,) = database.execute("SELECT blob_key FROM file WHERE id = ?", (result,)).fetchone()
    content = yard.installation.data / "blobs" / blob[:2] / blob[2:4] / blob
    content.write_bytes(flip(content.read_bytes(), 1_500_000))
    page.one(f"{batch} [data-results]").click()
    page.until_reads(f"{batch} [data-text='says']", "is damaged on the server", "1048576 to 2097151")


def test_a_batch_whose_contents_are_gone_keeps_nobody_from_seeing_the_others(
    page: Browser, yard: Yard, tmp_path: Path
) -> None:
    damaged = send(page, tmp_path, "damaged.jsonl", rows(3, user="status=400"))
    page.until_reads(f"{damaged} [data-errors]", "400")
    for content in (yard.installation.data / "blobs").glob("??/??/*"):
        content.unlink()
    page = page.signed_in(yard.ready["api_key"])
    page.until_reads(f"{damaged} [data-errors]", "400")  # counted as the batch ended
    page.one(f"{damaged} [data-results]").click()
    page.until_reads(f"{damaged} [data-text='says']", "it is gone")
    page.until_reads(send(page, tmp_path, "next.jsonl", rows(2)), "2 rows: 2 answered")
    assert page.text("#connection") == ""


def test_a_server_that_is_away_is_asked_again_until_it_is_back(page: Browser) -> None:
    page.until_reads("#workers", "gpu-box-1")
    with page.offline():
        page.until_reads("#connection", "does not answer", "Next try in")
        assert "gpu-box-1" in page.text("#workers")
    until(lambda: page.text("#connection") == "", "it is back", seconds=90)


def test_a_server_that_hangs_is_told_like_one_that_is_away(page: Browser) -> None:
    page.until_reads("#workers", "gpu-box-1")
    with page.unanswered():
        page.until_reads("#connection", "does not answer", "what is shown may be old")
    until(lambda: page.text("#connection") == "", "it is back", seconds=90)


def test_a_phone_and_the_dark_are_no_obstacle(page: Browser) -> None:
    page.until_reads("#workers", "gpu-box-1")
    page.until_seen("#batches li")
    light = page.run("return getComputedStyle(document.body).backgroundColor")
    with page.sized(320, 640), page.colours("dark"):
        assert page.run("return getComputedStyle(document.body).backgroundColor") != light
        assert page.run("return document.documentElement.scrollWidth") <= 320
        page.run("document.getElementById('batches').scrollIntoView()")
        page.picture("page-phone")


def test_the_focus_is_seen_and_every_control_has_a_name(page: Browser) -> None:
    page.until_seen("#batches li")
    page.press(TAB)
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    nameless = """
        return [...document.querySelectorAll("main button, main input, main select")].filter((each) =>
            !each.textContent.trim() && !each.labels?.length && !each.ariaLabel).map((each) => each.outerHTML);
    """
    assert page.run(nameless) == []


def test_the_browser_had_nothing_to_complain_of(page: Browser) -> None:
    page.until_seen("#batches li")
    complaints = [entry["message"] for entry in page.driver.get_log("browser") if entry["level"] == "SEVERE"]
    answered = ("401", "403", "404", "409", "ERR_INTERNET_DISCONNECTED", "ERR_INCOMPLETE_CHUNKED_ENCODING")
    assert [text for text in complaints if not any(word in text for word in answered)] == []
