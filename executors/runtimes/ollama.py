"""Ollama by its own API (AR-02, B-06 to B-09): what its OpenAI-compatible one leaves out can be asked for.

A row goes to `/api/chat`, `/api/generate` or `/api/embed` in Ollama's words, and its answer comes back in OpenAI's.
`/v1/responses` has no counterpart and stays what it is, and so does a body that is none of its endpoint: Ollama's own
`/v1` knows best what to say to it.
"""

import re
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, NamedTuple

from app.domain.parameter_table import CHAT, COMPLETIONS, EMBEDDINGS
from app.domain.rows import Blame, Reply, Row, RowError, RowErrorCode
from app.domain.runtimes import RuntimeFacts, ServedModel
from executors.cancellation import CancelToken
from executors.http_wire import Answer, DeadlinePassed
from executors.request_ids import new_request_id
from executors.runtimes import ollama_chat, ollama_embed, ollama_generate
from executors.runtimes.ollama_answers import broken, native_reply
from executors.runtimes.ollama_body import (
    Malformed,
    Refused,
    Reload,
    Request,
    canonical_model,
    fields_of,
    options_of,
    reload_options,
)
from executors.runtimes.ollama_chunks import embed_in_chunks
from executors.runtimes.ollama_embed import Embedding, Unpaired
from executors.runtimes.ollama_loading import Loads, NotLoaded, Wanted
from executors.runtimes.ollama_pull import pull_model
from executors.runtimes.openai_compatible import OpenAICompatibleExecutor, Read, TimeLimit, unavailable
from executors.settings import ExecutorSettings

_SINCE_OLDEST = (CHAT, COMPLETIONS, EMBEDDINGS)
_RESPONSES_SINCE = (0, 13, 3)
_TEXT_PARAMETERS_SINCE = (
    ((0, 12, 11), frozenset({"logprobs", "top_logprobs"})),
    ((0, 5, 0), frozenset({"response_format.json_schema", "format.json_schema"})),
)

_ONE_AT_A_TIME = frozenset(
    {
        "lfm2",
        "lfm2moe",
        "mllama",
        "nemotron_h",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen3next",
        "qwen3vl",
        "qwen3vlmoe",
    }
)
"""Families that Ollama loads for one request at a time whatever OLLAMA_NUM_PARALLEL says; so it does embedders."""


class _Texts(NamedTuple):
    """How rows of one endpoint are sent and read."""

    path: str
    request: Callable[..., Request]
    reply: Callable[..., Reply]
    empty: tuple[str, Hashable]


_TEXTS = {
    CHAT: _Texts(ollama_chat.PATH, ollama_chat.request, ollama_chat.openai_reply, ("messages", ())),
    COMPLETIONS: _Texts(ollama_generate.PATH, ollama_generate.request, ollama_generate.openai_reply, ("prompt", "")),
}


class OllamaExecutor(OpenAICompatibleExecutor):
    """One Ollama server. The model `x` is the model `x:latest`."""

    kind: ClassVar[str] = "ollama"
    default_url: ClassVar[str | None] = "http://127.0.0.1:11434"
    one_group_at_a_time: ClassVar[bool] = True
    embedding_chunk_size = 64

    def __init__(self, settings: ExecutorSettings, url: str | None = None) -> None:
        super().__init__(settings, url)
        self.pulls = settings.pull_models
        self._cuts = settings.ollama_truncate
        self._families: dict[str, str] = {}
        self._loads = Loads(self._load)

    def look(self, deadline: float) -> RuntimeFacts:
        """Ask for the version and what is installed."""
        version = str(self._get_json("/api/version", deadline)["version"])
        models = self._get_json("/api/tags", deadline)["models"]
        self._families = {canonical_model(str(model["name"])): _family(model) for model in models}
        return RuntimeFacts(
            name=self.name,
            kind=self.kind,
            alive=True,
            models=tuple(_served(str(model["name"])) for model in models),
            endpoints=(*_SINCE_OLDEST, "/v1/responses") if _since(version, _RESPONSES_SINCE) else _SINCE_OLDEST,
            slots=self.settings.ollama_num_parallel,
            version=version,
        )

    def unsupported(self, endpoint: str) -> frozenset[str]:
        """Add what this version of Ollama would leave out in silence."""
        version = self._facts.version
        if endpoint not in _TEXTS or version is None:
            return super().unsupported(endpoint)
        newer = (names for first, names in _TEXT_PARAMETERS_SINCE if not _since(version, first))
        return super().unsupported(endpoint).union(*newer)

    def limit(self, row: Row) -> int | None:
        """Say how many requests Ollama works on at once; it is never told how many more wait in it."""
        if row.endpoint == EMBEDDINGS or self._families.get(canonical_model(row.model)) in _ONE_AT_A_TIME:
            return 1
        return self.settings.ollama_num_parallel

    def group(self, row: Row) -> Hashable:
        """Tell rows apart that want their model loaded with other options: Ollama loads it anew for each."""
        return canonical_model(row.model), _reload_of(row)

    def can_coalesce_embedding(self, row: Row) -> bool:
        """Take rows with one text (B-09)."""
        return ollama_embed.shares(row, cuts=self._cuts)

    def execute_chunk(self, rows: Sequence[Row], *, timeout: float, cancelled: CancelToken) -> list[Reply]:
        """Embed rows by as few requests as their parameters allow (B-08, B-16, B-20)."""

        def alone(row: Row) -> Reply:
            return self.execute(row, timeout=timeout, cancelled=cancelled)

        def together(part: Sequence[Embedding]) -> list[Reply] | Reply:
            return self._embed(part, timeout, cancelled)

        return embed_in_chunks(rows, cuts=self._cuts, together=together, alone=alone)

    def pull(self, model: str, *, progress: Callable[[int, int], None], cancelled: CancelToken) -> None:
        """Have Ollama fetch a model; only its word `success` is one."""
        pull_model(
            self.client(),
            model,
            stall_seconds=self.settings.pull_stall_seconds,
            pause_seconds=self.settings.pull_pause_seconds,
            progress=progress,
            cancelled=cancelled,
        )

    def _execute(self, row: Row, timeout: float, cancelled: CancelToken) -> Reply:
        try:
            if row.endpoint == EMBEDDINGS:
                made = self._embed([ollama_embed.read(row, cuts=self._cuts)], timeout, cancelled)
                return made if isinstance(made, Reply) else made[0]
            if row.endpoint in _TEXTS:
                return self._generate(row, timeout, cancelled)
        except Refused as error:
            return Reply(error=RowError(RowErrorCode.UNSUPPORTED_PARAMETER, str(error)))
        except Malformed:
            pass
        return super()._execute(row, timeout, cancelled)

    def _generate(self, row: Row, timeout: float, cancelled: CancelToken) -> Reply:
        way = _TEXTS[row.endpoint]
        request = way.request(row.body, cuts=self._cuts)
        wanted = Wanted(way.path, way.empty, row.model, request.reload)

        def read(answer: Answer, *, request_id: str) -> Reply:
            reply = native_reply(answer, request_id=request_id)
            if not reply.ok or reply.body is None:
                return reply
            self._loads.answered(wanted)
            return way.reply(reply.body, model=row.model, request_id=request_id, created=int(time.time()))

        return self._ask(way.path, request.body, read, wanted, TimeLimit(timeout), cancelled)

    def _embed(self, rows: Sequence[Embedding], timeout: float, cancelled: CancelToken) -> list[Reply] | Reply:
        """Send one request for all `rows`; one reply each, or one that says why there are none."""
        replies: list[Reply] = []
        wanted = Wanted(ollama_embed.PATH, ("input", ()), rows[0].row.model, rows[0].request.reload)

        def read(answer: Answer, *, request_id: str) -> Reply:
            reply = native_reply(answer, request_id=request_id)
            if not reply.ok or reply.body is None:
                return reply
            self._loads.answered(wanted)
            try:
                replies[:] = ollama_embed.openai_replies(reply.body, rows, request_id=request_id)
            except Unpaired as error:
                return broken(str(error), request_id=request_id)
            return reply

        body = ollama_embed.shared_request(rows) if len(rows) > 1 else rows[0].request.body
        reply = self._ask(ollama_embed.PATH, body, read, wanted, TimeLimit(timeout), cancelled)
        return replies or reply

    def _ask(
        self, path: str, body: bytes, read: Read, wanted: Wanted, limit: TimeLimit, cancelled: CancelToken
    ) -> Reply:
        """Send a request once its model is loaded; the time that takes is not the row's."""

        def load() -> Answer | None:
            began = time.monotonic()
            refused = self._loads.ensure(wanted, cancelled)
            limit.give_back(time.monotonic() - began)
            return refused

        try:
            reply = self.exchange(path, body, read, limit, cancelled, before=load)
        except NotLoaded as error:
            reply = unavailable(str(error), Blame.RUNTIME)
        if reply.blame is not Blame.ROW:
            self._loads.forget()  # who knows what became of the runtime
        return reply

    def _load(self, path: str, body: bytes, cancelled: CancelToken) -> Answer:
        seconds = self.settings.model_load_seconds
        deadline = time.monotonic() + seconds
        try:
            return self.client().post(path, body, request_id=new_request_id(), deadline=deadline, cancelled=cancelled)
        except DeadlinePassed:
            raise NotLoaded(f"the model was not loaded within {seconds:g} s") from None


def _served(model: str) -> ServedModel:
    return ServedModel(model, (canonical_model(model),) if canonical_model(model) != model else ())


def _family(model: dict[str, Any]) -> str:
    return str((model.get("details") or {}).get("family", ""))


def _since(version: str, first: tuple[int, ...]) -> bool:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3]) >= first


def _reload_of(row: Row) -> Reload:
    if b'"options"' not in row.body:
        return ()
    try:
        return reload_options(options_of(fields_of(row.body)))
    except Malformed:
        return ()
