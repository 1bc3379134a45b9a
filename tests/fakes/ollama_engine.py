"""What the fake Ollama does with a request once it has read it: loading, queueing, answering. Words count as tokens.

A `[[mark]]` in a text comes back in the answer. `{{order}}` asks for something special: `{{hang}}`, `{{status=500}}`,
`{{cut}}`, `{{tool}}`, `{{ms=50}}`, and in texts to embed `{{bad}}`, `{{nan}}`, `{{short}}`.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MARK = re.compile(r"\[\[[\x21-\x7e]*?\]\]")
ORDER = re.compile(r"\{\{(\w+)(?:=(\w+))?\}\}")
RUNNER_OPTIONS = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread")
FLOATS = ("temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "frequency_penalty", "presence_penalty")
INTEGERS = ("seed", "num_predict", "top_k", "num_ctx", "num_keep", "repeat_last_n")
BUSY = "server busy, please try again.  maximum pending requests exceeded"
NUMBERS = 8


class Status(Exception):
    """An answer that is a refusal: the status and the text of its `error`."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Cut(Exception):
    """The runner died: the connection closes without an answer."""


@dataclass
class Runner:
    """A loaded model."""

    options: tuple[tuple[str, Any], ...]
    slots: asyncio.Semaphore
    busy: int = 0  # requests that have it, the waiting ones too
    working: int = 0


@dataclass
class Stats:
    requests: Counter[str] = field(default_factory=Counter)
    bodies: list[dict[str, Any]] = field(default_factory=list)  # of rows, the last 400, with their path
    loads: list[str] = field(default_factory=list)
    in_flight: int = 0
    max_at_once: int = 0
    aborted: int = 0
    marks: Counter[str] = field(default_factory=Counter)


class Engine:
    """Models, one load at a time, and as many rows at once as a model is loaded for."""

    def __init__(
        self, *, models: list[str], parallel: int, max_queue: int, load_ms: float, context: int, max_loaded: int
    ) -> None:
        self.models = {full(model) for model in models}
        self.parallel = parallel
        self.max_queue = max_queue
        self.load_ms = load_ms
        self.context = context
        self.max_loaded = max_loaded
        self.loaded: dict[str, Runner] = {}
        self.loading: str | None = None
        self.pending = 0
        self.turn = asyncio.Lock()
        self.freed = asyncio.Condition()
        self.stats = Stats()

    # --- loading, as the scheduler of the real one

    async def runner(self, model: str, options: dict[str, Any]) -> Runner:
        """Give the model loaded with these options; others wait behind one that has to be loaded."""
        if not model:
            raise Status(400, "model is required")
        name = full(model)
        if name not in self.models:
            raise Status(404, f'model "{model}" not found, try pulling it first')
        self.check(options)
        if self.pending >= self.max_queue:
            raise Status(503, BUSY)
        self.pending += 1
        try:
            async with self.turn:
                return await self.load(name, tuple((key, options[key]) for key in RUNNER_OPTIONS if key in options))
        finally:
            self.pending -= 1

    async def load(self, name: str, options: tuple[tuple[str, Any], ...]) -> Runner:
        found = self.loaded.get(name)
        if found and found.options == options:
            return found
        while name in self.loaded or len(self.loaded) >= self.max_loaded:
            leaving = name if name in self.loaded else next(iter(self.loaded))
            async with self.freed:
                await self.freed.wait_for(lambda: not self.loaded[leaving].busy)  # noqa: B023 - awaited at once
            del self.loaded[leaving]
        self.stats.loads.append(name)
        self.loading = name
        try:
            await asyncio.sleep(self.load_ms / 1000)
        finally:
            self.loading = None
        one = "embed" in name or "qwen3vl" in name
        self.loaded[name] = Runner(options, asyncio.Semaphore(1 if one else self.parallel))
        return self.loaded[name]

    @staticmethod
    def check(options: dict[str, Any]) -> None:
        for key, value in options.items():
            if key in FLOATS and not isinstance(value, int | float):
                raise Status(500, f'option "{key}" must be of type float32')
            if key in INTEGERS and not isinstance(value, int | float):
                raise Status(500, f'option "{key}" must be of type integer')
            if key == "stop" and not isinstance(value, list):
                raise Status(500, 'option "stop" must be of type array')

    # --- answering

    async def work(self, runner: Runner, texts: list[str]) -> None:
        """Take a slot and do what the texts order."""
        runner.busy += 1
        self.stats.in_flight += 1
        try:
            async with runner.slots:
                runner.working += 1
                self.stats.max_at_once = max(self.stats.max_at_once, runner.working)
                try:
                    for name, value in (order for text in texts for order in ORDER.findall(text)):
                        await self.obey(name, value)
                finally:
                    runner.working -= 1
        finally:
            runner.busy -= 1
            self.stats.in_flight -= 1
            async with self.freed:
                self.freed.notify_all()

    @staticmethod
    async def obey(name: str, value: str) -> None:
        if name == "hang":
            await asyncio.Event().wait()
        elif name == "ms":
            await asyncio.sleep(int(value) / 1000)
        elif name == "status":
            raise Status(int(value), f"told to answer {value}")
        elif name == "cut":
            raise Cut
        elif name == "bad":
            raise Status(400, "input exceeds maximum context length and cannot be truncated further")
        elif name == "nan":
            raise Status(400, "embedding contains NaN or Inf values")

    async def generate(self, request: dict[str, Any], texts: list[str], images: list[str]) -> dict[str, Any]:
        """Answer texts: what chat and generate have in common, without the answer's own field."""
        options = request.get("options") or {}
        for image in images:
            try:
                base64.b64decode(image, validate=True)
            except (binascii.Error, ValueError):
                raise Status(400, "illegal base64 data at input byte 4") from None
        if request.get("think") and not request["model"].startswith("think"):
            raise Status(400, f'"{request["model"]}" does not support thinking')
        runner = await self.runner(request["model"], options)
        for mark in MARK.findall(" ".join(texts)):
            self.stats.marks[mark] += 1
        prompt = sum(len(text.split()) for text in texts)
        window = options.get("num_ctx", self.context)
        if prompt > window:
            if request.get("truncate", True) is False:
                raise Status(400, "the input length exceeds the context length")
            prompt = window
        await self.work(runner, texts)
        words = self.said(request, texts, images).split(" ")
        most = options.get("num_predict", -1)
        done = words if most < 0 else words[:most]
        answer: dict[str, Any] = {
            "model": request["model"],
            "created_at": "2026-08-21T12:00:00.123456789Z",
            "done": True,
            "done_reason": "stop" if len(done) == len(words) else "length",
            "total_duration": 5_000_000,
            "load_duration": 1_000_000,
            "prompt_eval_count": prompt,
            "eval_count": len(done),
            "text": " ".join(done),
        }
        if request.get("think"):
            answer["thinking"] = f"because of {request['think']}"
        if request.get("logprobs"):
            answer["logprobs"] = [logprob(word, request.get("top_logprobs", 0)) for word in done]
        return answer

    @staticmethod
    def said(request: dict[str, Any], texts: list[str], images: list[str]) -> str:
        mark = " ".join(MARK.findall(" ".join(texts))[-1:])
        shape = request.get("format")
        if shape == "json":
            return json.dumps({"answer": mark}, separators=(",", ":"))
        if isinstance(shape, dict):
            return json.dumps(dict.fromkeys(shape.get("properties", {}), mark), separators=(",", ":"))
        seen = f" {len(images)} images" if images else ""
        return f"answer {mark}{seen} \u00e9\u2028".strip(" ")

    async def embed(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer texts with vectors. One bad text fails all."""
        given = request.get("input")
        texts = [given] if isinstance(given, str) and given else given or []
        if not isinstance(texts, list) or any(not isinstance(text, str) for text in texts):
            raise Status(400, "invalid input type")
        runner = await self.runner(request.get("model", ""), request.get("options") or {})
        if not texts:
            return {"model": request["model"], "embeddings": []}
        for mark in MARK.findall(" ".join(texts)):
            self.stats.marks[mark] += 1
        if request.get("truncate", True) is False and any(len(text.split()) > self.context for text in texts):
            raise Status(400, "the input length exceeds the context length")
        await self.work(runner, texts)
        vectors = [vector(text)[: request.get("dimensions") or NUMBERS] for text in texts]
        if len(texts) > 1 and any("{{short}}" in text for text in texts):
            vectors.pop(0)
        tokens = sum(min(self.context, len(text.split())) for text in texts)
        return {"model": request["model"], "embeddings": vectors, "prompt_eval_count": tokens}


def full(model: str) -> str:
    """Name a model with its tag."""
    return model if ":" in model.rpartition("/")[2] else f"{model}:latest"


def vector(text: str) -> list[float]:
    """Make a vector that belongs to this text and no other."""
    digest = hashlib.sha256(text.encode()).digest()
    return [byte / 256 for byte in digest[:NUMBERS]]


def logprob(word: str, top: int) -> dict[str, Any]:
    """Make the log probability of one word, and of others in its place."""
    one: dict[str, Any] = {"token": word, "logprob": -0.5}
    if top:
        one["top_logprobs"] = [{"token": f"{word}{n}", "logprob": -0.5 - n} for n in range(top)]
    return one
