"""What an executor is built from. The worker maps its configuration to this; executors never read any themselves."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """Choices for the runtimes beside one worker. Times are seconds, sizes bytes.

    `runtime` is `auto`, `ollama`, `vllm`, `local`, `fake` or a dotted path `package.module:Class`. `urls` are its
    servers, with or without `/v1`; empty means the runtime's own default. `embedding_chunk_size` None: what suits the
    runtime.
    """

    runtime: str = "auto"
    urls: tuple[str, ...] = ()
    api_key: str | None = field(default=None, repr=False)
    probe_seconds: float = 2.0
    connect_seconds: float = 5.0
    max_answer_bytes: int = 64 * 1024 * 1024
    embedding_chunk_size: int | None = None
    pull_models: bool = False
    # Ollama only
    ollama_num_parallel: int = 1
    ollama_truncate: bool = False
    model_load_seconds: float = 600.0
    pull_stall_seconds: float = 300.0
    pull_pause_seconds: float = 1.0
    # the local model only
    model_path: Path | None = None
    local_slots: int = 4
    local_context_tokens: int = 8192
    local_embeddings: bool = False
