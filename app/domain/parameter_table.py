"""What each kind of runtime does with each parameter of OpenAI's bodies: the one table (DESIGN 6, R-23).

`docs/reference/parameters.md` is written from it. Facts: OpenAI's reference as its SDK 3.57 has it, the documents and
sources of vLLM 0.32, Ollama and llama.cpp's server, and docs/reference/runtimes.md for what was observed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
RESPONSES = "/v1/responses"

KINDS = ("vllm", "ollama", "local", "fake")
"""The table's columns. `vllm` is any server with OpenAI's API, `local` llama.cpp, `fake` takes everything."""

MANY = "*"
"""Of a runtime: every parameter that this table does not know. Of a row: such parameters, too many to name."""


class Way(StrEnum):
    """What becomes of a parameter on a kind of runtime."""

    NATIVE = "native"
    """The runtime gets it as it stands."""
    TRANSLATED = "translated"
    """The runtime gets it in its own words."""
    NO_MEANING = "no meaning"
    """It changes no answer, here or at OpenAI: accepted, and nobody needs to take it."""
    UNSUPPORTED = "unsupported"
    """The runtime would ignore or refuse it: such a row is not for it."""


class Support(NamedTuple):
    """How a kind takes a parameter. `words` name what a translated one becomes (`options.num_predict`)."""

    way: Way
    words: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an endpoint, or with a dot in its name a form of one (`input.tokens`).

    `plain` are values that ask for nothing beyond what every runtime does anyhow; null always is one. `varies`: some
    runtime of a kind that takes it may not, by its version or its set-up. `essential`: a row makes no sense without.
    `crosses`: it changes no answer of its own row, and reaches what other rows, other orgs' too, have of the runtime.
    """

    name: str
    support: Mapping[str, Support]
    plain: tuple[object, ...] = ()
    varies: bool = False
    essential: bool = False
    crosses: bool = False


NATIVE = Support(Way.NATIVE)
NO_MEANING = Support(Way.NO_MEANING)
UNSUPPORTED = Support(Way.UNSUPPORTED)


def _to(words: str) -> Support:
    return Support(Way.TRANSLATED, words)


def _of(
    name: str,
    ollama: Support,
    *,
    vllm: Support = NATIVE,
    local: Support = NATIVE,
    plain: tuple[object, ...] = (),
    varies: bool = False,
    essential: bool = False,
    crosses: bool = False,
) -> Parameter:
    return Parameter(
        name,
        {"vllm": vllm, "ollama": ollama, "local": local, "fake": NATIVE},
        plain,
        varies=varies,
        essential=essential,
        crosses=crosses,
    )


def _nowhere(name: str, *plain: object) -> Parameter:
    return _of(name, UNSUPPORTED, vllm=UNSUPPORTED, local=UNSUPPORTED, plain=plain)


def _meaningless(*names: str) -> tuple[Parameter, ...]:
    return tuple(_of(name, NO_MEANING, vllm=NO_MEANING, local=NO_MEANING) for name in names)


def _ollamas_own(*names: str, crosses: bool = False) -> tuple[Parameter, ...]:
    return tuple(_of(name, NATIVE, vllm=UNSUPPORTED, local=UNSUPPORTED, crosses=crosses) for name in names)


_SAMPLING = (
    *(
        _of(name, _to(f"options.{name}"))
        for name in ("temperature", "top_p", "seed", "stop", "frequency_penalty", "presence_penalty", "top_k", "min_p")
    ),
    _of("repetition_penalty", _to("options.repeat_penalty"), local=UNSUPPORTED),
    _of("repeat_penalty", _to("options.repeat_penalty"), vllm=UNSUPPORTED),
    _of("n", UNSUPPORTED, plain=(1,)),
    _of("logit_bias", UNSUPPORTED, plain=({},)),
)
_OPENAIS_OWN = _meaningless(
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "stream",
    "stream_options",
)

# Of vLLM, SGLang and llama.cpp: the order of the queue, ids by which other requests are found, state that the server
# keeps by a name, which of its engines or slots a request takes, and which host its cache is fetched from.
TRANSFERS = ("kv_transfer_params", "ec_transfer_params")
"""vLLM takes them by themselves, and in its `vllm_xargs`."""
_ENGINES_CROSSING = (
    _of("priority", UNSUPPORTED, plain=(0,), crosses=True),
    *(
        _of(name, UNSUPPORTED, crosses=True)
        for name in (
            *("request_id", "rid", "session_id", "session_params"),
            *("data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank", "id_slot"),
            *TRANSFERS,
            *(f"vllm_xargs.{name}" for name in TRANSFERS),
            *("bootstrap_host", "bootstrap_port", "bootstrap_room"),
        )
    ),
)
PLACING = ("num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread")
"""Of Ollama's `options` those with which it loads a model anew for all rows, and which change no answer."""
_OLLAMAS_CROSSING = _ollamas_own("keep_alive", *(f"options.{name}" for name in PLACING), crosses=True)
_SCHEMAS = (
    _of("response_format.json_schema", NATIVE, varies=True, essential=True),
    _of("format.json_schema", NATIVE, vllm=UNSUPPORTED, local=UNSUPPORTED, varies=True, essential=True),
)

_CHAT = (
    _of("model", NATIVE, essential=True),
    _of("messages", NATIVE, essential=True),
    _of("messages.image_url", UNSUPPORTED, essential=True),
    *(
        _of(f"messages.{part}", UNSUPPORTED, essential=True)
        for part in ("input_audio", "audio_url", "video_url", "file")
    ),
    _of("max_tokens", _to("options.num_predict")),
    _of("max_completion_tokens", _to("options.num_predict")),
    *_SAMPLING,
    _of("response_format", _to("format"), plain=({"type": "text"},), varies=True),
    _of("tools", _to("tools"), plain=([],), varies=True),
    _of("tool_choice", UNSUPPORTED, plain=("auto", "none"), varies=True),
    _of("parallel_tool_calls", UNSUPPORTED, plain=(True,), varies=True),
    _nowhere("functions", []),
    _nowhere("function_call", "auto", "none"),
    _of("logprobs", _to("logprobs"), plain=(False,), varies=True),
    _of("top_logprobs", _to("top_logprobs"), plain=(0,), varies=True),
    _of("reasoning_effort", _to("think"), varies=True),
    _of("reasoning", _to("think"), vllm=UNSUPPORTED, local=UNSUPPORTED),
    _nowhere("verbosity", "medium"),
    _nowhere("modalities", ["text"]),
    _nowhere("audio"),
    _nowhere("web_search_options"),
    _nowhere("moderation"),
    *_meaningless("prediction"),
    *_OPENAIS_OWN,
    *_ollamas_own("options", "think", "format", "truncate", "shift"),
    *_SCHEMAS,
    *_ENGINES_CROSSING,
    *_OLLAMAS_CROSSING,
)

_COMPLETIONS = (
    _of("model", NATIVE, essential=True),
    _of("prompt", NATIVE, essential=True),
    _of("prompt.list", UNSUPPORTED, essential=True),
    _of("prompt.tokens", UNSUPPORTED, essential=True),
    _of("max_tokens", _to("options.num_predict")),
    *_SAMPLING,
    _of("response_format", _to("format"), local=UNSUPPORTED, plain=({"type": "text"},), varies=True),
    _of("suffix", _to("suffix"), vllm=UNSUPPORTED, local=UNSUPPORTED, plain=("",)),
    _of("logprobs", _to("logprobs, top_logprobs"), plain=(False,), varies=True),
    _of("echo", UNSUPPORTED, local=UNSUPPORTED, plain=(False,)),
    _nowhere("best_of", 1),
    *_OPENAIS_OWN,
    *_ollamas_own("options", "think", "format", "truncate", "shift", "system", "template", "raw", "images"),
    *_SCHEMAS,
    *_ENGINES_CROSSING,
    *_OLLAMAS_CROSSING,
)

_EMBEDDINGS = (
    _of("model", NATIVE, essential=True),
    _of("input", NATIVE, essential=True),
    _of("input.tokens", UNSUPPORTED, essential=True),
    _of("dimensions", _to("dimensions"), local=UNSUPPORTED, varies=True),
    _of("encoding_format", _to("encoded by the worker"), plain=("float",), varies=True),
    *_OPENAIS_OWN,
    *_ollamas_own("options", "truncate"),
    *_ENGINES_CROSSING,
    *_OLLAMAS_CROSSING,
)

_RESPONSES = (
    *(_of(name, NATIVE, essential=True) for name in ("model", "input")),
    *(_of(name, NATIVE) for name in ("instructions", "max_output_tokens", "temperature", "top_p")),
    _of("tools", NATIVE, plain=([],), varies=True),
    _of("text", NATIVE, local=UNSUPPORTED, plain=({"format": {"type": "text"}},), varies=True),
    _of("reasoning", NATIVE, varies=True),
    _of("tool_choice", UNSUPPORTED, plain=("auto", "none"), varies=True),
    _of("parallel_tool_calls", UNSUPPORTED, plain=(True,), varies=True),
    _of("max_tool_calls", UNSUPPORTED, local=UNSUPPORTED),
    _of("include", UNSUPPORTED, local=UNSUPPORTED, plain=([],)),
    _of("top_logprobs", UNSUPPORTED, local=UNSUPPORTED, plain=(0,)),
    _of("truncation", UNSUPPORTED, local=UNSUPPORTED, plain=("disabled",)),
    _nowhere("background", False),  # noqa: FBT003 - a value of OpenAI's
    *(
        _nowhere(name)
        for name in ("previous_response_id", "conversation", "prompt", "moderation", "context_management")
    ),
    *(_nowhere(name) for name in ("access_programs", "background_options", "image")),
    *_OPENAIS_OWN,
    *_ENGINES_CROSSING,
)


TABLE: Mapping[str, Mapping[str, Parameter]] = {
    endpoint: {parameter.name: parameter for parameter in rows}
    for endpoint, rows in (
        (CHAT, _CHAT),
        (COMPLETIONS, _COMPLETIONS),
        (EMBEDDINGS, _EMBEDDINGS),
        (RESPONSES, _RESPONSES),
    )
}
"""Parameters by endpoint and name."""

PASSES_UNKNOWN: Mapping[str, bool] = {"vllm": True, "ollama": False, "local": True, "fake": True}
"""Whether a parameter that the table does not know reaches a kind of runtime, which then judges it itself."""
