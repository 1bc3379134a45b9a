"""One table says what each runtime takes; what a row asks for is found fast, and as the slow reading finds it."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.parameter_table import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    KINDS,
    MANY,
    PASSES_UNKNOWN,
    RESPONSES,
    TABLE,
    Way,
)
from app.domain.parameters import (
    MAX_NAME_CHARACTERS,
    MAX_NAMED,
    bounded,
    bounded_by_model,
    essential,
    keys_of,
    needed,
    refused,
    unsupported,
)

CELLS = [
    pytest.param(endpoint, name, kind, id=f"{endpoint} {name} on {kind}")
    for endpoint, known in TABLE.items()
    for name in known
    for kind in KINDS
]
ALL = [(endpoint, parameter) for endpoint, known in TABLE.items() for parameter in known.values()]


@pytest.mark.parametrize(("endpoint", "name", "kind"), CELLS)
def test_a_kind_refuses_exactly_what_the_table_says_it_does_not_take(endpoint: str, name: str, kind: str) -> None:
    way = TABLE[endpoint][name].support[kind].way
    assert (name in refused(unsupported(kind, endpoint), endpoint, {name})) is (way is Way.UNSUPPORTED)


@pytest.mark.parametrize(("endpoint", "name"), [(e, p.name) for e, p in ALL if "." not in p.name])
def test_whatever_some_kind_does_not_take_is_found_in_a_row(endpoint: str, name: str) -> None:
    """Else such a row would land on that runtime by the luck of a claim."""
    asks = needed(endpoint, {"model": "m", name: {"some": "value"}})
    somewhere_not = any(support.way is Way.UNSUPPORTED for support in TABLE[endpoint][name].support.values())
    assert (name in asks) is (somewhere_not or TABLE[endpoint][name].varies)


def test_translated_parameters_say_into_what() -> None:
    for _, parameter in ALL:
        for support in parameter.support.values():
            assert bool(support.words) is (support.way is Way.TRANSLATED), parameter.name


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        (CHAT, {"messages": [], "temperature": 0, "max_tokens": 5, "stop": ["x"], "seed": 1}),
        (CHAT, {"n": 1, "logprobs": False, "logit_bias": {}, "tools": [], "tool_choice": "auto"}),
        (CHAT, {"n": None, "logit_bias": None, "audio": None, "response_format": {"type": "text"}}),
        (CHAT, {"user": "u", "store": True, "metadata": {"a": "b"}, "service_tier": "flex", "prompt_cache_key": "k"}),
        (CHAT, {"never_heard_of": None}),
        (
            CHAT,
            {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]},
        ),
        (COMPLETIONS, {"prompt": "a", "suffix": "", "echo": False, "best_of": 1}),
        (EMBEDDINGS, {"input": ["a", "b"], "encoding_format": "float"}),
        (RESPONSES, {"input": "a", "truncation": "disabled", "background": False}),
        ("/v1/other", {"anything": 1}),
    ],
)
def test_defaults_and_what_changes_no_answer_ask_for_nothing(endpoint: str, body: dict[str, Any]) -> None:
    assert needed(endpoint, {"model": "m", **body}) == frozenset()


@pytest.mark.parametrize(
    ("endpoint", "body", "asked"),
    [
        (CHAT, {"n": 2}, {"n"}),
        (
            CHAT,
            {"logit_bias": {"1": 2}, "logprobs": True, "top_logprobs": 3},
            {"logit_bias", "logprobs", "top_logprobs"},
        ),
        (CHAT, {"tool_choice": "required"}, {"tool_choice"}),
        (CHAT, {"structured_outputs": {}}, {"structured_outputs"}),
        (CHAT, {"messages": [{"content": [{"type": "image_url", "image_url": "http://x/y"}]}]}, {"messages.image_url"}),
        (CHAT, {"messages": [{"content": [{"type": "input_audio"}]}]}, {"messages.input_audio"}),
        (COMPLETIONS, {"logprobs": 0}, {"logprobs"}),
        (COMPLETIONS, {"prompt": ["a", "b"]}, {"prompt.list"}),
        (COMPLETIONS, {"prompt": [1, 2]}, {"prompt.tokens"}),
        (EMBEDDINGS, {"input": [[1], [2]], "dimensions": 3}, {"input.tokens", "dimensions"}),
        (RESPONSES, {"previous_response_id": "resp_1"}, {"previous_response_id"}),
    ],
)
def test_what_a_row_asks_for(endpoint: str, body: dict[str, Any], asked: set[str]) -> None:
    assert needed(endpoint, {"model": "m", **body}) == asked


@pytest.mark.parametrize("name", ["x" * (MAX_NAME_CHARACTERS + 1), "", "a\x00b", "é", "messages.file", MANY])
def test_names_that_cannot_be_stored_are_found_without_their_name(name: str) -> None:
    assert needed(CHAT, {name: 1}) == {MANY}
    assert keys_of(CHAT, [name, "n"], {MANY}) == {name}


def test_unknown_parameters_pass_where_somebody_reads_them() -> None:
    """Extras of vLLM go to vLLM and to llama.cpp; Ollama's own API has no place for them."""
    for kind, passes in PASSES_UNKNOWN.items():
        assert bool(refused(unsupported(kind, CHAT), CHAT, {"guided_choice"})) is not passes
        assert bool(refused(unsupported(kind, CHAT), CHAT, {MANY})) is not passes


def test_ollamas_own_parameters_are_for_ollama_alone() -> None:
    asked = {"options", "keep_alive", "think"}
    assert refused(unsupported("ollama", CHAT), CHAT, asked) == frozenset()
    assert refused(unsupported("vllm", CHAT), CHAT, asked) == asked


def test_a_kind_that_nobody_knows_takes_everything() -> None:
    assert unsupported("mine", CHAT) == frozenset()
    assert refused((), CHAT, {"n", "never_heard_of"}) == frozenset()
    assert unsupported("openai", CHAT) == unsupported("vllm", CHAT)


def test_forms_of_what_a_row_is_about_are_never_left_out() -> None:
    assert essential(EMBEDDINGS, {"input.tokens", "dimensions", "never_heard_of"}) == {"input.tokens"}


def test_what_is_stored_of_a_shard_is_bounded_however_much_its_rows_invent() -> None:
    invented = {f"p{number}" for number in range(MAX_NAMED)}
    assert bounded(CHAT, invented) == invented
    assert bounded(CHAT, invented | {"n"}) == {"n", MANY}
    by_model = {f"m{number}": frozenset({"n", f"p{number}"}) for number in range(200)}
    assert bounded_by_model(CHAT, by_model) == tuple((model, (MANY, "n")) for model in sorted(by_model))
    few = {"b": frozenset({"n"}), "a": frozenset({"z", "n"})}
    assert bounded_by_model(CHAT, few) == (("a", ("n", "z")), ("b", ("n",)))


# --- the slow reading: one parameter after the other, by the words of the table


def slowly(endpoint: str, body: dict[str, Any]) -> set[str]:
    found = set()
    for key, value in body.items():
        known = TABLE[endpoint].get(key)
        if value is None or (known is not None and json.dumps(value) in [json.dumps(plain) for plain in known.plain]):
            continue
        if known is None or "." in key:
            storable = key not in TABLE[endpoint] and key.isascii() and key.isprintable() and 1 <= len(key) <= 64
            found.add(key if storable else "*")
        elif known.varies or any(support.way is Way.UNSUPPORTED for support in known.support.values()):
            found.add(key)
    return found | {form for form in _forms(endpoint, body) if form in TABLE[endpoint]}


def _forms(endpoint: str, body: dict[str, Any]) -> set[str]:
    if endpoint == EMBEDDINGS and isinstance(body.get("input"), list):
        return set() if all(isinstance(one, str) for one in body["input"]) else {"input.tokens"}
    if endpoint == COMPLETIONS and isinstance(body.get("prompt"), list):
        return {"prompt.list"} if all(isinstance(one, str) for one in body["prompt"]) else {"prompt.tokens"}
    found = set()
    messages = body.get("messages") if endpoint == CHAT else None
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else []:
            if isinstance(part, dict) and isinstance(part.get("type"), str):
                image = part.get("image_url")
                url = image.get("url") if isinstance(image, dict) else image
                if part["type"] != "image_url" or (isinstance(url, str) and url[:5] != "data:"):
                    found.add(f"messages.{part['type']}")
    return found


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["auto", "none", "text", "data:x", "", "float"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "url", "content"]), inner),
    max_leaves=4,
)
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "input_audio", "file", "*", "other"])},
    optional={"image_url": st.sampled_from(["http://x", "data:x", {"url": "http://x"}, {"url": "data:x"}, {}, 1])},
)
MESSAGES = st.lists(st.fixed_dictionaries({"content": st.text(max_size=2) | st.lists(PARTS, max_size=2)}), max_size=2)
NAMES = [*sorted({name for known in TABLE.values() for name in known}), "unknown", "", "x" * 65, "a\tb", MANY]


@given(st.sampled_from(sorted(TABLE)), st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5), MESSAGES | VALUES)
@example(CHAT, {"n": True, "logprobs": 0, "parallel_tool_calls": 1}, None)
@example(COMPLETIONS, {"prompt": [], "echo": 0}, None)
def test_the_fast_reading_finds_what_the_slow_one_finds(endpoint: str, body: dict[str, Any], messages: Any) -> None:
    row = {**body, "messages": messages}
    assert needed(endpoint, row) == slowly(endpoint, row)
