"""Whose doing an answer is that may come from a proxy before the runtime, and what is read of it (B-14)."""

import pytest

from app.domain.rows import Blame
from executors.answers import reply_of
from executors.http_wire import Answer
from executors.runtimes.vllm import VLLMExecutor
from tests.executors.running import chat_row, run
from tests.fakes.runtime_process import RuntimeProcess

HTML = "raw=<html>down</html>;type=text/html"
SHORT = 1.0


@pytest.mark.parametrize("status", [499, 520, 521, 522, 523, 525, 526, 527, 529, 530])
def test_a_proxys_status_says_that_the_runtime_is_away(vllm: VLLMExecutor, status: int) -> None:
    assert run(vllm, chat_row(user=f"status={status};times=1;{HTML}")).ok
    reply = run(vllm, chat_row(user=f"status={status};{HTML}"), timeout=SHORT)
    assert (reply.status, reply.blame) == (status, Blame.RUNTIME)


@pytest.mark.parametrize(
    ("status", "blame"),
    [*((status, Blame.UNCLEAR) for status in (408, 409, 425, 524)), (403, Blame.GATEWAY), (404, Blame.GATEWAY)],
)
@pytest.mark.parametrize("body", [HTML, "raw= ", 'raw={"message":"no Route matched"}'])
def test_a_status_that_may_be_a_proxys_is_not_the_rows_alone(
    vllm: VLLMExecutor, status: int, blame: Blame, body: str
) -> None:
    reply = run(vllm, chat_row(user=f"status={status};{body}"))
    assert (reply.status, reply.blame) == (status, blame)


@pytest.mark.parametrize("status", [403, 404, 408, 409, 425, 499, 520, 524, 530])
@pytest.mark.parametrize(
    "body",
    ['{"error":{"message":"no"}}', '{"error":"no"}', '{"detail":"Not Found"}', '{"object":"error","message":"no"}'],
)
def test_an_engines_own_error_is_the_rows_answer_whatever_its_status(
    vllm: VLLMExecutor, status: int, body: str
) -> None:
    reply = run(vllm, chat_row(user=f"status={status};raw={body}"))
    assert (reply.status, reply.blame) == (status, Blame.ROW)


class TestARedirect:
    @pytest.mark.parametrize("status", [307, 308])
    @pytest.mark.parametrize("place", ["/v1/chat/completions", "{url}/v1/chat/completions?x=1"])
    def test_on_the_same_server_is_followed_with_the_same_body(
        self, vllm: VLLMExecutor, mock: RuntimeProcess, status: int, place: str
    ) -> None:
        reply = run(vllm, chat_row(user=f"status={status};times=1;header=Location: {place.format(url=mock.url)}"))
        assert reply.ok
        assert mock.stats()["requests"] == 2

    def test_that_leads_round_in_a_circle_ends(self, vllm: VLLMExecutor, mock: RuntimeProcess) -> None:
        reply = run(vllm, chat_row(user="status=307;header=Location: /v1/chat/completions"))
        assert reply.blame is Blame.RUNTIME
        assert mock.stats()["requests"] <= 6

    @pytest.mark.parametrize(
        ("status", "place"),
        [(301, "/x"), (302, "/x"), (303, "/x"), (307, "http://127.0.0.2:1/x"), (308, "https://[::1/x"), (307, "")],
    )
    def test_to_elsewhere_is_named_and_not_followed(
        self, vllm: VLLMExecutor, mock: RuntimeProcess, status: int, place: str
    ) -> None:
        reply = run(vllm, chat_row(user=f"status={status};header=Location: {place}"))
        assert reply.blame is Blame.RUNTIME
        assert reply.error is not None
        assert f"redirects to {place}" in reply.error.message
        assert mock.stats()["requests"] <= 2


class TestABody:
    @pytest.mark.parametrize("said", [HTML, "raw= ", 'raw={"choices":[', 'raw={"choices":[]}', 'raw={"ok":true}'])
    def test_that_is_no_answer_of_the_endpoint_is_not_the_rows_doing_alone(self, vllm: VLLMExecutor, said: str) -> None:
        reply = run(vllm, chat_row(user=said))
        assert (reply.status, reply.blame) == (None, Blame.UNCLEAR)

    def test_that_ignores_what_was_asked_is_the_rows(self, vllm: VLLMExecutor) -> None:
        assert run(vllm, chat_row(user='raw={"choices":[{}]}', n=2)).blame is Blame.ROW

    def test_that_is_compressed_is_read_good_or_bad(self, vllm: VLLMExecutor, mock: RuntimeProcess) -> None:
        assert run(vllm, chat_row(user="gzip=1")).ok
        reply = run(vllm, chat_row(user='status=400;gzip=1;raw={"error":{"message":"too long"}}'))
        assert reply.body == b'{"error":{"message":"too long"}}'
        assert mock.stats()["headers"]["accept-encoding"] == "identity"

    def test_in_an_unknown_encoding_names_it(self, vllm: VLLMExecutor) -> None:
        reply = run(vllm, chat_row(user="header=Content-Encoding: lzma"))
        assert reply.error is not None
        assert "content encoding 'lzma'" in reply.error.message

    def test_is_quoted_as_printable_text_only(self, vllm: VLLMExecutor) -> None:
        reply = run(vllm, chat_row(user="raw=\\x1b[31mno\\x00\\x07 \\xff\\xfe\\x9b answer;type=text/plain"))
        assert reply.error is not None
        assert reply.error.message.isprintable()

    @pytest.mark.parametrize(
        ("body", "kind", "name"),
        [
            (b'{"a":"\xe9"}', "application/json; charset=latin-1", "latin-1"),
            (b'\xff\xfe{\x00"\x00', "application/json", "UTF-16"),
            (b'{"a":"\xe9"}', "application/json", "an encoding it does not name"),
        ],
    )
    def test_that_is_not_utf_8_fails_its_row_and_names_the_encoding(self, body: bytes, kind: str, name: str) -> None:
        reply = reply_of(Answer(200, {"content-type": kind}, body, reusable=True), request_id="r")
        assert reply.blame is Blame.ROW
        assert reply.error is not None
        assert reply.error.message == f"the runtime's answer is not UTF-8 but {name}"

    def test_with_a_number_that_most_clients_cannot_read_fails_its_row(self, vllm: VLLMExecutor) -> None:
        for digits, is_fine in ((4300, True), (4301, False), (9000, False)):
            number = '{"choices":[{}],"created":' + "1" * digits + "}"
            text = '{"choices":[{}],"created":"' + "1" * digits + '"}'
            assert run(vllm, chat_row(user=f"raw={number}")).ok is is_fine
            assert run(vllm, chat_row(user=f"raw={text}")).ok
        reply = run(vllm, chat_row(user='status=400;raw={"error":{"code":' + "1" * 5000 + "}}"))
        assert b"1" * 4301 not in (reply.body or b"")
