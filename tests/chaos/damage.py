"""Damage to stored contents, done behind the service's back, each to a batch that is checked at the end.

Hand-ins are damaged in the batch of the whole run. For an input or a result there are batches beside it, so that what
they lose does not end the run. A file of the store that is no content is never touched.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from openai.types import FileObject

from tests.chaos.books import Books
from tests.chaos.forms import PREFIX, Form, Kind
from tests.chaos.schedule import Fault
from tests.e2e.rows import CHAT, known, lines
from tests.e2e.submitted import Submitted
from tests.e2e.yard import Yard, until

LOOK_SECONDS = 0.1
GET_SECONDS = 30.0


@dataclass
class Damaged:
    """A batch that a fault has met; a swap meets two. `right`: the bytes of a damaged output file before."""

    fault: Fault
    prefix: str
    rows: int
    batch: Submitted
    right: bytes = b""


class Damage:
    """One run's. Faults that need a batch of their own make it in a thread: the API may be away just then."""

    def __init__(self, yard: Yard, books: Books, form: Form, whole: Submitted, *, seed: int) -> None:
        self._yard = yard
        self._books = books
        self._form = form
        self._whole = whole
        self._chance = random.Random(seed)
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="damage")
        self._numbering = threading.Lock()
        self._made = 0
        self.done: list[Damaged] = []

    def begin(self, fault: Fault, batch_id: str) -> Callable[[], bool]:
        """Let it happen as soon as there is what it meets; what is returned tells whether it has happened."""
        happens: Callable[[], None] = {
            "segment": lambda: self._segment(fault, batch_id),
            "input": lambda: self._input(fault),
            "upload": lambda: self._upload(fault),
            "result": lambda: self._result(fault),
        }[fault.target]
        future: Future[None] = self._threads.submit(happens)
        return lambda: future.done() and future.result() is None

    def close(self) -> None:
        """Wait for what is under way."""
        self._threads.shutdown()

    def whole_result(self) -> None:
        """The last one of each run: a bit of the whole batch's output file, which is several blocks long."""
        fault = Fault(self._form.rows, Kind.FLIP, "result", 0.0)
        self.done.append(one := Damaged(fault, PREFIX, self._form.rows, self._whole))
        self._hit_results(fault, [one])

    def unended(self, *, seconds: float) -> list[Damaged]:
        """Wait for the ends of all, at most so long, and return those that have none."""
        end = time.monotonic() + seconds
        left = self.done
        while left := [one for one in left if not self._books.standing(one.batch.id).has_ended]:
            if time.monotonic() > end:
                break
            time.sleep(LOOK_SECONDS)
        return left

    # --- what is met

    def _segment(self, fault: Fault, batch_id: str) -> None:
        keys = until(lambda: _two(self._books.hand_ins(batch_id)), "there are two hand-ins", seconds=self._bound)
        self._hit(fault.kind, self._chance.sample(keys, 2))

    def _upload(self, fault: Fault) -> None:
        """Before validation: nobody has read it yet."""
        prefixes = [self._prefix(fault) for _ in self._each(fault)]
        files = [self._file(prefix) for prefix in prefixes]
        self._hit(fault.kind, [self._books.blob_of(file.id) for file in files])
        for prefix, file in zip(prefixes, files, strict=True):
            self._note(fault, prefix, self._create(file))

    def _input(self, fault: Fault) -> None:
        """While its rows run: some are stored, and others were not read yet."""
        found = self._batches(fault)
        until(
            lambda: all(self._books.standing(one.batch.id).stored >= one.rows // 8 for one in found),
            "rows of it are stored",
            seconds=self._bound,
        )
        self._hit(fault.kind, [self._books.input_of(one.batch.id) for one in found])

    def _result(self, fault: Fault) -> None:
        found = self._batches(fault)
        until(
            lambda: all(self._books.standing(one.batch.id).has_ended for one in found), "it ends", seconds=self._bound
        )
        self._hit_results(fault, found)

    def _hit_results(self, fault: Fault, found: list[Damaged]) -> None:
        keys = [self._books.output_of(one.batch.id) for one in found]
        for one, key in zip(found, keys, strict=True):
            one.right = self._path(key).read_bytes()
        self._hit(fault.kind, keys)

    # --- batches beside the whole one

    def _each(self, fault: Fault) -> range:
        return range(2 if fault.kind is Kind.SWAP else 1)

    def _batches(self, fault: Fault) -> list[Damaged]:
        prefixes = [self._prefix(fault) for _ in self._each(fault)]
        return [self._note(fault, prefix, self._create(self._file(prefix))) for prefix in prefixes]

    def _prefix(self, fault: Fault) -> str:
        with self._numbering:
            self._made += 1
            return f"{fault.target}{self._made:02}"

    def _file(self, prefix: str) -> FileObject:
        content = lines(known(prefix, number) for number in range(self._form.side_rows))
        return self._yard.sdk.files.create(file=(f"{prefix}.jsonl", content), purpose="batch")

    def _create(self, file: FileObject) -> Submitted:
        """It goes before the whole one, or it would run when all else is over."""
        batch = self._yard.sdk.batches.create(
            input_file_id=file.id, endpoint=CHAT, completion_window="24h", extra_body={"priority": 9}
        )
        return Submitted(self._yard.sdk, self._yard.http, batch.id)

    def _note(self, fault: Fault, prefix: str, batch: Submitted) -> Damaged:
        self.done.append(Damaged(fault, prefix, self._form.side_rows, batch))
        return self.done[-1]

    # --- the bytes

    @property
    def _bound(self) -> float:
        return self._form.bound_seconds

    def _path(self, key: str) -> Path:
        return self._yard.installation.data / "blobs" / key[:2] / key[2:4] / key

    def _hit(self, kind: Kind, keys: list[str]) -> None:
        paths = [self._path(key) for key in keys]
        first = paths[0]
        if kind is Kind.FLIP:
            content = bytearray(first.read_bytes())
            content[self._chance.randrange(len(content))] ^= 1 << self._chance.randrange(8)
            _replace(first, bytes(content))
        elif kind is Kind.TRUNCATE:
            os.truncate(first, first.stat().st_size // 2)
        elif kind is Kind.SWAP:
            contents = [path.read_bytes() for path in paths]
            for path, content_of_the_other in zip(paths, reversed(contents), strict=True):
                _replace(path, content_of_the_other)
        else:
            first.unlink()


def _two(keys: list[str]) -> list[str]:
    return keys if len(keys) > 1 else []


def _replace(path: Path, content: bytes) -> None:
    """At once: nobody is to see a half of it, which would be another fault."""
    other = path.with_suffix(".damage")
    other.write_bytes(content)
    other.replace(path)


@dataclass(frozen=True)
class Download:
    """An answer to a GET: the bytes that came, how many were announced, and the code of a refusal."""

    came: bytes
    announced: int
    refusal: str

    def is_cut(self, one: Damaged) -> bool:
        """Whether no wrong byte came, and not all of them: it was refused, or broke off."""
        return one.right.startswith(self.came) and (self.is_refused or len(self.came) < self.announced)

    @property
    def is_refused(self) -> bool:
        return self.refusal == "409 file_damaged"


def served(yard: Yard, one: Damaged) -> Download:
    """Download a batch's output file."""
    came = b""
    with yard.http.stream("GET", f"/v1/files/{one.batch.now().output_file_id}/content", timeout=GET_SECONDS) as answer:
        announced = int(answer.headers.get("content-length", 0))
        if not answer.is_success:
            answer.read()
            return Download(b"", announced, f"{answer.status_code} {answer.json()['error']['code']}")
        with suppress(httpx.RemoteProtocolError, httpx.ReadError):  # it breaks off
            for piece in answer.iter_raw():
                came += piece
    return Download(came, announced, "")
