"""Embeddings by /api/embed: many rows in one request, and no row the worse for it (B-04 to B-10, B-16, B-20)."""

import base64
import struct
import threading
from collections.abc import Callable, Sequence

import pytest

from app.domain.rows import Blame, Reply, Row, RowError, RowErrorCode
from executors.cancellation import CancelToken, RowCancelled
from executors.fakes import FakeExecutor
from executors.runtimes.ollama_chunks import embed_in_chunks
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.ollama import CHAT, EMBEDDINGS, Ollama, answer_of, error_of
from tests.executors.running import row_of
from tests.fakes.ollama_engine import NUMBERS, vector

Start = Callable[..., Ollama]


def text_row(text: object, **fields: object) -> Row:
    return row_of(EMBEDDINGS, model="embed", input=text, **fields)


def chunk(server: Ollama, rows: Sequence[Row], *, timeout: float = 10) -> list[Reply]:
    return server.executor.execute_chunk(rows, timeout=timeout, cancelled=CancelToken())


def sizes(server: Ollama) -> list[int]:
    """How many texts each request had."""
    return [len(body["input"]) if isinstance(body["input"], list) else 1 for body in server.sent(EMBEDDINGS)]


def numbers_of(reply: Reply) -> list[float]:
    (one,) = answer_of(reply)["data"]
    return list(one["embedding"])


def test_many_rows_are_one_request_and_each_gets_its_own_vector(server: Ollama) -> None:
    texts = [f"text {n} {'word ' * n}" for n in range(64)]
    replies = chunk(server, [text_row(text) for text in texts])
    assert sizes(server) == [64]
    assert [numbers_of(reply) for reply in replies] == [vector(text) for text in texts]


def test_tokens_are_split_over_the_rows_and_none_is_lost(server: Ollama) -> None:
    texts = ["one", "one two three four five six", "one two"]
    replies = chunk(server, [text_row(text) for text in texts])
    shares = [reply.usage.input_tokens for reply in replies]
    assert sum(shares) == 9
    assert shares[1] == max(shares)
    for reply, share in zip(replies, shares, strict=True):
        assert answer_of(reply)["usage"] == {"prompt_tokens": share, "total_tokens": share}
        assert reply.usage.total_tokens == share


def test_an_answer_has_every_field_of_openais(server: Ollama) -> None:
    answer = answer_of(server.ask(EMBEDDINGS, model="embed", input=["a", "b c"], user="me"))
    assert answer == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": vector("a")},
            {"object": "embedding", "index": 1, "embedding": vector("b c")},
        ],
        "model": "embed",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
    assert server.sent(EMBEDDINGS) == [{"model": "embed", "input": ["a", "b c"], "stream": False, "truncate": False}]


@pytest.mark.parametrize("bad", ["{{bad}}", "{{nan}}", "{{status=500}}"])
def test_when_a_shared_request_is_refused_only_the_bad_row_fails(server: Ollama, bad: str) -> None:
    """FT-25."""
    replies = chunk(server, [text_row("first"), text_row(bad), text_row("last")])
    assert [reply.ok for reply in replies] == [True, False, True]
    assert numbers_of(replies[2]) == vector("last")
    assert replies[1].status in {400, 500}


def test_a_row_that_kills_the_runner_leaves_its_neighbours_alone(server: Ollama) -> None:
    replies = chunk(server, [text_row("first"), text_row("{{cut}}")], timeout=30)
    assert [reply.ok for reply in replies] == [True, False]


def test_an_answer_with_a_vector_too_few_is_given_to_nobody(server: Ollama) -> None:
    texts = ["first", "{{short}}", "last"]
    replies = chunk(server, [text_row(text) for text in texts])
    assert [numbers_of(reply) for reply in replies] == [vector(text) for text in texts]
    assert sizes(server) == [3, 1, 1, 1]


def test_a_fault_that_all_rows_share_is_asked_for_once(server: Ollama) -> None:
    rows = [row_of(EMBEDDINGS, model="nope", input=text) for text in ("a", "b", "c")]
    replies = chunk(server, rows)
    assert [reply.status for reply in replies] == [404, 404, 404]
    assert server.process.stats()["requests"]["/api/embed"] <= 2


def test_rows_with_other_parameters_do_not_share_a_request(server: Ollama) -> None:
    rows = [text_row("a"), text_row("b", dimensions=4), text_row("c"), text_row("d", options={"num_ctx": 512})]
    replies = chunk(server, rows)
    assert [len(numbers_of(reply)) for reply in replies] == [NUMBERS, 4, NUMBERS, NUMBERS]
    assert sorted(sizes(server)) == [1, 1, 2]


def test_base64_is_little_endian_float32_and_rows_with_and_without_it_share_a_request(server: Ollama) -> None:
    plain, packed = chunk(server, [text_row("a"), text_row("b", encoding_format="base64")])
    assert numbers_of(plain) == vector("a")
    (one,) = answer_of(packed)["data"]
    assert list(struct.unpack(f"<{NUMBERS}f", base64.b64decode(one["embedding"]))) == vector("b")
    assert sizes(server) == [2]


def test_dimensions_that_the_model_does_not_have_fail_the_row(server: Ollama) -> None:
    reply = server.ask(EMBEDDINGS, model="embed", input="a", dimensions=999)
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.UNSUPPORTED_PARAMETER
    assert "999" in reply.error.message


def test_a_text_longer_than_the_context_is_refused_and_its_neighbours_are_not(ollama: Start) -> None:
    server = ollama("--context", 5)
    long = "word " * 9
    short, refused = chunk(server, [text_row("short"), text_row(long)])
    assert short.ok
    assert (refused.status, error_of(refused)["message"]) == (400, "the input length exceeds the context length")
    assert ollama("--context", 5, ollama_truncate=True).ask(EMBEDDINGS, model="embed", input=long).ok


@pytest.mark.parametrize("given", [[1, 2, 3], [[1, 2], [3]]])
def test_tokens_are_refused_by_name(server: Ollama, given: object) -> None:
    reply = server.ask(EMBEDDINGS, model="embed", input=given)
    assert reply.error is not None
    assert "input.tokens" in reply.error.message or "'input'" in reply.error.message
    assert reply.error.code is RowErrorCode.UNSUPPORTED_PARAMETER


@pytest.mark.parametrize("given", ["", [], None, 7])
def test_nothing_to_embed_is_left_to_ollamas_own_v1(server: Ollama, given: object) -> None:
    reply = server.ask(EMBEDDINGS, model="embed", input=given)
    assert (reply.status, error_of(reply)["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    ("row", "may"),
    [
        (text_row("a text"), True),
        (text_row("a text", dimensions=4, keep_alive="1m"), True),
        (text_row(["a", "list"]), False),
        (text_row(["a list of one"]), False),
        (text_row([1, 2]), False),
        (text_row(""), False),
        (text_row(None), False),
        (text_row("a", zzz=1), False),
        (row_of(CHAT, messages=[]), False),
        (Row(1, "a", EMBEDDINGS, "embed", b"{"), False),
    ],
)
def test_rows_with_one_text_may_share_a_request(server: Ollama, row: Row, may: bool) -> None:
    assert server.executor.can_coalesce_embedding(row) is may


def test_the_number_of_rows_that_may_share_is_64_on_ollama_and_a_setting(server: Ollama) -> None:
    assert server.executor.embedding_chunk_size == 64
    assert FakeExecutor(ExecutorSettings()).embedding_chunk_size == 1
    vllm = VLLMExecutor(ExecutorSettings())
    assert vllm.embedding_chunk_size == 1
    assert not vllm.can_coalesce_embedding(text_row("a"))
    assert FakeExecutor(ExecutorSettings(embedding_chunk_size=9)).embedding_chunk_size == 9


def test_a_hanging_runtime_is_waited_for_together_and_by_two_rows_alone(server: Ollama) -> None:
    """And not by each of the chunk's rows, one after the other."""
    rows = [text_row("{{hang}}") for _ in range(8)]
    replies = chunk(server, rows, timeout=0.3)
    assert sizes(server) == [8, 1, 1]
    assert {reply.error and reply.error.code for reply in replies} == {RowErrorCode.REQUEST_TIMEOUT}


def test_a_cancel_ends_a_chunk_and_the_work_on_it(server: Ollama) -> None:
    token = CancelToken()
    timer = threading.Timer(0.3, token.cancel)
    timer.start()
    with pytest.raises(RowCancelled):
        server.executor.execute_chunk([text_row("{{hang}}"), text_row("b")], timeout=60, cancelled=token)
    timer.join()
    server.process.wait_for(lambda stats: stats["in_flight"] == 0)


def test_rows_sent_alone_do_not_each_wait_for_a_runtime_that_has_gone() -> None:
    rows = [row_of(EMBEDDINGS, model="embed", input=f"text {number}") for number in range(5)]
    gone = Reply(error=RowError(RowErrorCode.RUNTIME_UNAVAILABLE, "refused"), blame=Blame.RUNTIME)
    good = Reply(status=200, body=b"{}")
    alone = iter([good, gone])
    made = embed_in_chunks(
        rows, cuts=False, together=lambda _part: Reply(status=400, body=b"{}"), alone=lambda _row: next(alone)
    )
    assert made == [good, gone, gone, gone, gone]
