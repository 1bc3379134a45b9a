"""The part of the client that a person's tool uses."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from app.client.errors import Refused, TryLater
from app.client.public import PublicApi
from tests.fakes.control_plane import Answer, FakeControlPlane, refusal


@pytest.fixture
def api(plane: FakeControlPlane) -> Iterator[PublicApi]:
    with PublicApi(plane.url, "gk-test") as found:
        yield found


def test_an_object_is_read_as_json(plane: FakeControlPlane, api: PublicApi) -> None:
    plane.next("batches", Answer(200, {"object": "list", "data": []}))
    assert api.get("/v1/batches", limit=3, after=None) == {"object": "list", "data": []}


def test_a_refusal_says_message_code_and_param(plane: FakeControlPlane, api: PublicApi) -> None:
    plane.next("batches", refusal(400, "invalid_endpoint", "No such endpoint."))
    with pytest.raises(Refused, match="No such endpoint") as raised:
        api.post("/v1/batches", {"endpoint": "/v1/x"})
    assert raised.value.code == "invalid_endpoint"
    assert plane.called("batches")[0].raw == b'{"endpoint":"/v1/x"}'


def test_a_body_is_streamed(plane: FakeControlPlane, api: PublicApi) -> None:
    plane.next("results", Answer(200, ["a", "b"]))
    with api.stream("/v1/batches/b/results") as response:
        assert b"".join(response.iter_bytes()) == b'["a", "b"]'


def test_a_refused_stream_raises_before_it_is_read(plane: FakeControlPlane, api: PublicApi) -> None:
    plane.next("results", refusal(404))
    with pytest.raises(Refused), api.stream("/v1/batches/b/results"):
        pass


def read(api: PublicApi) -> object:
    with api.stream("/v1/things") as response:
        return response.read()


CALLS: dict[str, Callable[[PublicApi], object]] = {
    "get": lambda api: api.get("/v1/things"),
    "post": lambda api: api.post("/v1/things", {}),
    "upload": lambda api: api.post("/v1/things", files={"file": ("a", b"x")}),
    "stream": read,
}
SOON = {"retry-after": "0"}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("status", "code"), [(429, "too_many_uploads"), (503, "too_many_uploads"), (503, "unavailable")]
)
def test_whatever_the_server_asks_to_be_sent_later_is_sent_again(
    plane: FakeControlPlane, call: Callable[[PublicApi], object], status: int, code: str
) -> None:
    later = replace(refusal(status, code, "come later"), headers=SOON)
    plane.next("things", later, later, Answer(200, {}))
    said: list[str] = []
    with PublicApi(plane.url, "gk-test", busy=said.append) as api:
        call(api)
    assert len(plane.called("things")) == 3
    assert said == (["come later"] if code.startswith("too_many") else [])


@pytest.mark.parametrize("kind", ["post", "upload", "stream"])
@pytest.mark.parametrize("answer", [Answer(503, headers=SOON), refusal(503, "unavailable")], ids=["proxy", "no word"])
def test_what_may_have_been_done_is_sent_once(
    plane: FakeControlPlane, api: PublicApi, kind: str, answer: Answer
) -> None:
    plane.next("things", answer)
    with pytest.raises(TryLater):
        CALLS[kind](api)
    assert len(plane.called("things")) == 1


def test_what_can_be_sent_once_is_sent_once(plane: FakeControlPlane, api: PublicApi) -> None:
    plane.next("things", replace(refusal(429, "too_many_uploads"), headers=SOON))
    with pytest.raises(TryLater):
        api.post("/v1/things", {}, once_only=True)
    assert len(plane.called("things")) == 1
