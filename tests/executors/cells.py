"""What four servers do with the same rows, and what becomes of each row: the data of test_cells.

A cell is one case at one server. The replica of the server (tests/fakes/replica_server.py) gives its answer; the cell
says what of it the engine stores, and after how many requests. `NOT_TRIED` are the cells that nobody observed.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.domain.rows import Blame, Row, RowErrorCode
from tests.executors.running import chat_row

SERVERS = ("vllm", "llama-server", "llama-cpp-python", "transformers")
EMBEDDERS = ("vllm", "llama-server", "llama-cpp-python")

BEYOND_THE_CONTEXT = "x" * 50_000
TWENTY_MEBIBYTES = "x" * (20 * 1024 * 1024)


@dataclass(frozen=True)
class Comes:
    """What becomes of a row: the status and what its body says, or the code and words of its error.

    Unless the reply blames the row, the worker decides whether it is run again before that is stored (verdicts).
    """

    status: int | None = 200
    says: str = ""
    code: RowErrorCode | None = None
    requests: int = 1
    blame: Blame = Blame.ROW


Cells = dict[str, tuple[Callable[[], Row], dict[str, Comes]]]


def ok(says: str = "") -> Comes:
    """An answer, passed through."""
    return Comes(200, says)


def ignored() -> Comes:
    """An answer as if the parameter had not been there. Nothing in it shows that; the parameter table knows."""
    return Comes(200)


def refused(status: int, says: str) -> Comes:
    """The runtime's own refusal, at once."""
    return Comes(status, says)


def insists(says: str) -> Comes:
    """A bad request dressed as 500: it might have been a dying engine, so it is tried twice more, and doubted then."""
    return Comes(500, says, requests=3, blame=Blame.UNCLEAR)


def overflow(says: str) -> Comes:
    """A 500 that says the prompt is too long: stored at once."""
    return Comes(500, says)


def broken(says: str) -> Comes:
    """A 200 that is no answer to what was asked."""
    return Comes(None, says, code=RowErrorCode.INTERNAL_ERROR)


def not_served() -> Comes:
    """An answer of another model than was asked for."""
    return Comes(None, "does not serve", code=RowErrorCode.RUNTIME_UNAVAILABLE, blame=Blame.RUNTIME)


def timed_out() -> Comes:
    """No answer: the row's own time-out ends it."""
    return Comes(None, "no answer within", code=RowErrorCode.REQUEST_TIMEOUT)


def raw_row(body: bytes, endpoint: str = "/v1/chat/completions") -> Row:
    """Make a row of any bytes, also of such that validation would never let through."""
    return Row(1, "row-1", endpoint, "mock", body)


def without_model() -> Row:
    """Make a chat row that names no model."""
    return raw_row(b'{"messages": [{"role": "user", "content": "hello"}]}')


def asked(**fields: Any) -> Callable[[], Row]:
    """Make chat rows with these parameters."""
    return lambda: chat_row(**fields)


def saying(content: str) -> Callable[[], Row]:
    """Make chat rows with this prompt."""
    return lambda: chat_row(content)


def embedding(value: Any, **fields: Any) -> Callable[[], Row]:
    """Make embedding rows."""
    body = json.dumps({"model": "mock", "input": value, **fields}).encode()
    return lambda: raw_row(body, "/v1/embeddings")


def at(endpoint: str) -> Callable[[], Row]:
    """Make rows for another path."""
    return lambda: raw_row(b'{"model": "mock"}', endpoint)


def schema(kind: str) -> Callable[[], Row]:
    """Make rows that ask for JSON of a schema."""
    return asked(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": kind}}})


def each(vllm: Comes, llama: Comes, llama_python: Comes, transformers: Comes | None = None) -> dict[str, Comes]:
    """Name what comes at each server, in the order of SERVERS."""
    cells = {"vllm": vllm, "llama-server": llama, "llama-cpp-python": llama_python}
    return cells | ({"transformers": transformers} if transformers else {})


FUNCTION = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}

ROWS: Cells = {
    "a model it does not serve": (
        asked(model="nope-1"),
        # Two of four answer with whatever they have. A worker sends them no such row (test_unlisted_models). Here they
        # get it, and llama-server gives itself away by the name that it answers with.
        each(refused(404, "does not exist"), not_served(), ok('"nope-1"'), refused(400, "pinned to")),
    ),
    "no model at all": (without_model, each(ok(), ok(), ok(), ok())),
    "a prompt beyond the context": (
        saying(BEYOND_THE_CONTEXT),
        each(
            refused(400, "maximum context length"),
            refused(400, "exceed_context_size_error"),
            refused(400, "context_length_exceeded"),
            timed_out(),
        ),
    ),
    "more tokens than the context": (asked(max_tokens=100_000), each(refused(400, "max_tokens"), ok(), ok())),
    "no token": (
        asked(max_tokens=0),
        each(refused(400, "max_tokens"), ok(), ok(), insists("Internal Server Error")),
    ),
    "fewer tokens than none": (
        asked(max_tokens=-5),
        each(
            refused(400, "max_tokens"),
            refused(400, "cannot have"),
            ok(),
            insists("Internal Server Error"),
        ),
    ),
    "a role that there is not": (
        asked(messages=[{"role": "poet", "content": "hello"}]),
        each(ok(), ok(), insists("does not match"), ok()),
    ),
    "no messages": (
        asked(messages=[]),
        each(refused(400, "must not be empty"), ok(), ok(), insists("Internal Server Error")),
    ),
    "two choices": (
        asked(n=2),
        each(
            ok(),
            ok(),
            broken("asked for n=2, the runtime answered 1 choice"),
            broken("asked for n=2, the runtime answered 1 choice"),
        ),
    ),
    "a temperature of nine": (asked(temperature=9), each(refused(400, "temperature"), ok(), ok(), ok())),
    "a temperature in words": (
        asked(temperature="hot"),
        each(
            refused(400, "temperature"),
            refused(400, "cannot have"),
            insists("valid number"),
            insists("Internal Server Error"),
        ),
    ),
    "a field nobody knows": (asked(zzz=1), each(ignored(), ignored(), ignored(), refused(422, "Unexpected fields"))),
    "no JSON": (
        lambda: raw_row(b'{"model": '),
        each(
            refused(400, "json_invalid"),
            insists("parse error"),
            insists("Internal Server Error"),
            refused(422, "body.1: JSON decode error"),
        ),
    ),
    "a stream": (
        asked(stream=True),
        each(*(broken("answered with a stream, which was not asked for") for _ in SERVERS)),
    ),
    "a schema": (schema("object"), each(ok(), ok(), insists("json_object"), ignored())),
    "a schema that makes no sense": (
        schema("poem"),
        each(refused(400, "grammar"), refused(400, "schema conversion"), insists("json_object"), ignored()),
    ),
    "tools": (asked(tools=[FUNCTION]), each(refused(400, "--enable-auto-tool-choice"), ok(), ok(), ok())),
    "logprobs": (asked(logprobs=True), each(ok(), ok(), ok(), broken("asked for logprobs"))),
    "half a character": (
        saying("\ud800"),
        each(refused(400, "surrogates"), insists("parse error"), insists("codec"), insists("Internal Server Error")),
    ),
    "twenty mebibytes": (
        saying(TWENTY_MEBIBYTES),
        each(
            refused(400, "maximum context length"),
            refused(400, "exceed_context_size_error"),
            refused(400, "context_length_exceeded"),
        ),
    ),
    "a path it does not have": (
        at("/v1/nowhere"),
        each(refused(404, "Not Found"), refused(404, "File Not Found"), refused(404, "Not Found"), refused(404, "Not")),
    ),
    "a path that takes no POST": (
        at("/v1/models"),
        each(
            refused(405, "Method Not Allowed"),
            refused(404, "File Not Found"),
            refused(405, "Method Not Allowed"),
            refused(405, "Method Not Allowed"),
        ),
    ),
}
"""One row sent to a server that is ready."""

EMBEDDINGS: Cells = {
    "a list": (embedding(["a", "b"]), each(ok(), ok(), ok())),
    "an empty list": (
        embedding([]),
        each(refused(400, "at least one prompt"), insists("must not be empty"), insists("returned -1")),
    ),
    "an empty text": (
        embedding(""),
        each(refused(400, "empty"), refused(400, "empty"), insists("returned -1")),
    ),
    "a text that is too long": (
        embedding(BEYOND_THE_CONTEXT),
        each(refused(400, "maximum context length"), overflow("too large to process"), ignored()),
    ),
    "token ids": (embedding([1, 2, 3]), each(ok(), ok(), insists("returned -1"))),
    "fewer dimensions": (
        embedding("a", dimensions=1),
        each(
            refused(400, "matryoshka"),
            broken("asked for dimensions=1, the runtime answered vectors of 2 numbers"),
            broken("asked for dimensions=1, the runtime answered vectors of 2 numbers"),
        ),
    ),
    "base64": (
        embedding("a", encoding_format="base64"),
        each(ok("AACAPgAAAD8="), ok("AACAPgAAAD8="), broken("asked for base64, the runtime answered a list")),
    ),
    "512 inputs": (embedding(["a"] * 512), each(ok(), ok(), ok())),
}
"""One row sent to a server that was started for embeddings."""

OTHERWISE: dict[str, tuple[str, str, Callable[[], Row], Comes]] = {
    "vectors of tokens": (
        "llama-cpp-python",
        "embeddings-of-a-causal-model",
        embedding(["a", "b"]),
        broken("one vector for each token"),
    ),
    "embeddings of a vLLM that generates": ("vllm", "ready", embedding("a"), refused(404, "Not Found")),
    "chat of a vLLM that embeds": ("vllm", "embeddings", chat_row, refused(404, "Not Found")),
    "embeddings that are switched off": ("llama-server", "ready", embedding("a"), refused(501, "--embeddings")),
    "an engine that is dead": ("vllm", "dead", chat_row, insists("EngineCore encountered an issue")),
}
"""One row sent to one server that was started in another way."""

NOT_TRIED = {
    ("transformers", "more tokens than the context"),
    ("transformers", "twenty mebibytes"),
}

STATES: dict[str, str] = {
    "starting": "test_a_server_that_refuses_while_it_starts_takes_rows_once_it_listens",
    "loading": "test_a_server_that_loads_its_model_says_so_and_costs_no_row",
    "no health": "test_a_server_without_health_is_known_by_its_models",
    "64 at once": "test_64_rows_at_once_are_all_answered",
    "overload of a bounded queue": "test_a_full_queue_is_waited_for",
    "overload without a bound": "test_a_server_without_a_bound_is_sent_each_row_once",
    "few HTTP threads": "test_a_server_whose_threads_are_all_taken_by_rows_is_busy_not_dead",
    "a wrong key": "test_a_wrong_key_is_the_runtimes_trouble_and_no_rows_and_has_the_servers_words",
    "no keys": "test_a_server_without_keys_takes_any",
    "request ids and content types": "test_rows_carry_an_id_and_a_type_that_every_server_takes",
    "told to stop: vLLM": "test_vllm_that_is_told_to_stop_answers_500_and_its_row_is_not_lost",
    "an idle engine killed": "test_vllm_whose_engine_is_dead_says_so_by_its_health",
    "an engine that hangs": "test_vllm_whose_engine_hangs_looks_well_and_its_rows_time_out",
    "told to stop: llama-server": "test_llama_server_that_is_told_to_stop_hangs_and_is_given_up",
    "told to stop or killed: llama.cpp in Python": "test_llama_cpp_inside_python_cuts_its_rows",
    "told to stop: the others": "test_servers_that_finish_first_lose_no_row",
}
"""Cells that are no single row: the test in test_states of each."""
