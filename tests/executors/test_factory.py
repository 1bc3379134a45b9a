"""The runtime is chosen by settings alone (AR-04, AR-06, R-31)."""

import importlib.util
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from executors.base import BaseExecutor, ExecutorUnavailable
from executors.detection import Places, detect
from executors.factory import executor_factory
from executors.fakes import FakeExecutor
from executors.runtimes.local import LocalExecutor
from executors.runtimes.ollama import OllamaExecutor
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.running import chat_row, run
from tests.fakes.runtime_process import RuntimeProcess


@pytest.fixture
def nowhere() -> Iterator[str]:
    """A URL where nobody listens: bound, so that nobody else takes it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


Built = Callable[[list[BaseExecutor]], list[BaseExecutor]]


@pytest.fixture
def built() -> Iterator[Built]:
    """Take what was built, and close it after the test."""
    kept: list[BaseExecutor] = []

    def keep(executors: list[BaseExecutor]) -> list[BaseExecutor]:
        kept.extend(executors)
        return executors

    yield keep
    for executor in kept:
        executor.close()


@pytest.mark.parametrize(
    ("runtime", "kind"), [("vllm", VLLMExecutor), ("ollama", OllamaExecutor), ("fake", FakeExecutor)]
)
def test_a_name_chooses_the_class(runtime: str, kind: type) -> None:
    (executor,) = executor_factory(ExecutorSettings(runtime=runtime))
    assert type(executor) is kind
    assert executor.url == kind.default_url


def test_every_url_gets_an_executor_with_a_name_of_its_own() -> None:
    urls = ("http://127.0.0.1:1/v1", "127.0.0.1:2")
    executors = executor_factory(ExecutorSettings(runtime="vllm", urls=urls))
    assert [executor.name for executor in executors] == ["vllm@http://127.0.0.1:1/v1", "vllm@127.0.0.1:2"]


def test_a_third_partys_class_works_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_runtime.py").write_text(
        "from executors.fakes import FakeExecutor\n\nclass AcmeExecutor(FakeExecutor):\n    kind = 'acme'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (executor,) = executor_factory(ExecutorSettings(runtime="acme_runtime:AcmeExecutor"))
    assert executor.probe().kind == "acme"
    assert run(executor, chat_row(model="fake")).ok
    del sys.modules["acme_runtime"]


@pytest.mark.parametrize(
    ("runtime", "said"),
    [
        ("vlm", "use auto, fake, local, ollama, vllm or a dotted path"),
        ("no_such_module:Class", "cannot be imported"),
        ("executors.base:Nothing", "cannot be imported"),
        ("json:JSONDecoder", "no subclass"),
        ("", "Unknown runtime ''"),
    ],
)
def test_what_is_no_runtime_is_refused_with_advice(runtime: str, said: str) -> None:
    with pytest.raises(ExecutorUnavailable, match=said):
        executor_factory(ExecutorSettings(runtime=runtime))


def test_a_url_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ExecutorUnavailable, match="no URL like"):
        executor_factory(ExecutorSettings(runtime="vllm", urls=("ftp://x",)))


def test_auto_takes_ollama_before_vllm(built: Built, runtime_server: Callable[..., RuntimeProcess]) -> None:
    places = Places(ollama=runtime_server("--kind", "ollama").url, vllm=runtime_server().url)
    (executor,) = built(detect(ExecutorSettings(), places))
    assert type(executor) is OllamaExecutor


def test_auto_takes_a_vllm_where_no_ollama_answers(
    built: Built, runtime_server: Callable[..., RuntimeProcess], nowhere: str
) -> None:
    (executor,) = built(detect(ExecutorSettings(), Places(ollama=nowhere, vllm=runtime_server().url)))
    assert type(executor) is VLLMExecutor


def test_auto_sends_no_prompts_to_a_web_server_on_vllms_port(
    runtime_server: Callable[..., RuntimeProcess], nowhere: str, tmp_path: Path
) -> None:
    other = runtime_server("--kind", "ollama").url  # has /v1/models, no /version
    settings = ExecutorSettings(model_path=tmp_path / "missing.gguf")
    with pytest.raises(ExecutorUnavailable, match=r"No runtime found.*--runtime-url.*gpuyard model fetch"):
        detect(settings, Places(ollama=nowhere, vllm=other))


def test_auto_ends_with_the_local_model(built: Built, nowhere: str) -> None:
    if importlib.util.find_spec("xllamacpp") is None:  # not imported: a system may lack what it is linked with
        pytest.skip("the extra `local`")
    (executor,) = built(detect(ExecutorSettings(), Places(ollama=nowhere, vllm=nowhere)))
    assert type(executor) is LocalExecutor


def test_auto_tells_by_itself_what_a_url_is(
    built: Built, runtime_server: Callable[..., RuntimeProcess], nowhere: str
) -> None:
    urls = (runtime_server("--kind", "ollama").url, runtime_server().url, nowhere, "fake:?slots=2")
    executors = built(executor_factory(ExecutorSettings(urls=urls)))
    assert [executor.kind for executor in executors] == ["ollama", "vllm", "vllm", "fake"]


def test_a_fakes_url_with_a_misspelt_rule_is_refused() -> None:
    with pytest.raises(ExecutorUnavailable, match="latency=5"):
        executor_factory(ExecutorSettings(runtime="fake", urls=("fake:?latency=5",)))
