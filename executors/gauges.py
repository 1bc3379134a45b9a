"""The load that LLM servers tell in Prometheus' text format at `/metrics`.

| server | works on | waits |
|---|---|---|
| vLLM | `vllm:num_requests_running` | `vllm:num_requests_waiting` |
| SGLang | `sglang:num_running_reqs` | `sglang:num_queue_reqs` |
| llama.cpp (with `--metrics`) | `llamacpp:requests_processing` | `llamacpp:requests_deferred` |
| Text Generation Inference | `tgi_batch_current_size` | `tgi_queue_size` |

A server has one sample for each of its engines or models; they are added up.
"""

import re

from app.domain.runtimes import RuntimeLoad

_RUNNING = (
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "llamacpp:requests_processing",
    "tgi_batch_current_size",
)
_WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred", "tgi_queue_size")
_SAMPLE = re.compile(
    rb"^(" + b"|".join(name.replace(":", "[:_]").encode() for name in (*_RUNNING, *_WAITING)) + rb")"
    rb"(?:\{[^\n]*\})?[ \t]+([0-9]{1,18}(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?)(?=[ \t\r\n]|\Z)",
    re.MULTILINE,
)
_OF_RUNNING = frozenset(name.replace(":", "_") for name in _RUNNING)


def read_load(text: bytes) -> RuntimeLoad | None:
    """Read the load out of a page of metrics. None: it has not both gauges.

    Exporters that must not have a colon in a name write an underscore; both are read.
    """
    running: list[float] = []
    waiting: list[float] = []
    for sample in _SAMPLE.finditer(text):
        name = sample[1].decode().replace(":", "_")
        (running if name in _OF_RUNNING else waiting).append(float(sample[2]))
    return RuntimeLoad(round(sum(running)), round(sum(waiting))) if running and waiting else None
