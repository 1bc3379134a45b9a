"""The child process of LocalExecutor: `python -m executors.runtimes.local_server MODEL ALIAS SLOTS CONTEXT EMBEDDINGS`.

Serves one GGUF file with llama.cpp's own HTTP server on a free loopback port, writes that server's URL as one line
to standard output, and ends when standard input does: the parent holds the other end and writes nothing, so any
death of the parent, `kill -9` included, ends the child.
"""

import os
import sys
import threading

_THREADS_FOR_HTTP = 32
# llama.cpp's own number is so low that rows in flight block `/v1/models`, and the runtime looks dead.

_ERRORS_ONLY = 1


def main(model: str, alias: str, slots: str, context_tokens: str, embeddings: str) -> None:
    """Serve until standard input ends. The model may take long to load; the end is seen even then.

    `embeddings` is `yes` or `no`. A text is given the mean of its tokens' vectors, beside what else the model does.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import xllamacpp  # noqa: PLC0415 - only this child may pay for it, and only once it watches its parent

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {alias}
    params.n_parallel = int(slots)
    params.n_ctx = int(context_tokens)
    params.n_threads_http = _THREADS_FOR_HTTP
    if embeddings == "yes":
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
        params.n_ubatch = params.n_batch  # a text is worked on in one piece, and may be no longer than it
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.verbosity = _ERRORS_ONLY
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201 - the parent reads it
    threading.Event().wait()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)  # llama.cpp's threads must not delay it


if __name__ == "__main__":
    main(*sys.argv[1:])
