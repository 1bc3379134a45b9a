"""What a batch needs, judged all at once: the same as each need judged for itself."""

from hypothesis import given
from hypothesis import strategies as st

from app.domain.eligibility import Requirement, Serving, can_serve
from app.domain.needs import Needs

MODELS = ("a", "b", "b:latest", "c")
NAMES = ("seed", "n", "*")
PATHS = ("/v1/chat/completions", "/v1/embeddings")

names = st.lists(st.sampled_from(NAMES), unique=True, max_size=2).map(lambda found: tuple(sorted(found)))
models = st.lists(st.sampled_from(MODELS), unique=True, max_size=3).map(tuple)
requirements = st.builds(
    lambda path, wanted, asked: Requirement(path, wanted, tuple((m, n) for m, n in asked.items() if m in wanted and n)),
    st.sampled_from(PATHS),
    models,
    st.dictionaries(st.sampled_from(MODELS), names),
)
servings = st.builds(
    Serving,
    kind=st.sampled_from(["vllm", "ollama"]),
    models=st.frozensets(st.sampled_from(MODELS)),
    endpoints=st.frozensets(st.sampled_from(PATHS)),
    alive=st.booleans(),
    pulls=st.booleans(),
    unsupported=st.dictionaries(st.sampled_from(PATHS), st.frozensets(st.sampled_from(NAMES))),
)


@given(st.lists(requirements, max_size=6), st.lists(servings, max_size=3), st.frozensets(st.sampled_from(MODELS)))
def test_it_says_of_each_key_what_can_serve_says(
    wanted: list[Requirement], runtimes: list[Serving], some: frozenset[str]
) -> None:
    by_key = {need.key: need for need in wanted}
    needs = Needs(by_key)
    assert len(needs) == len(by_key)
    assert needs.served_by(runtimes) == {
        key for key, need in by_key.items() if can_serve(runtimes, need, live_only=True)
    }
    assert needs.naming(some) == {key for key, need in by_key.items() if not some.isdisjoint(need.models)}
