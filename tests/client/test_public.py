"""The part of the client that a person's tool uses."""

from collections.abc import Iterator

import pytest

from app.client.errors import Refused
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
