"""Servers that answer as four real ones were seen to: `python tests/fakes/replica_server.py --like llama-server`.

vLLM 0.32, llama.cpp's llama-server b10434, llama-cpp-python 0.3.36 and `transformers serve` 5.24 were run on a CPU and
asked the same things. A replica reads the request and gives the status, the shape and the words that its server gave
(shortened), and it starts, drowns and dies like it (`--state`, SIGTERM). What it generates is the mock's.
"""

import asyncio
import signal
import socket
from argparse import ArgumentParser, Namespace
from pathlib import Path

from replicas.base import Replica
from replicas.llama_cpp_python import LlamaCppPython
from replicas.llama_server import LlamaServer, Xllamacpp
from replicas.transformers_serve import TransformersServe
from replicas.vllm import VLLM
from runtime_server import Connection, options_parser

REPLICAS: dict[str, type[Replica]] = {
    "vllm": VLLM,
    "llama-server": LlamaServer,
    "xllamacpp": Xllamacpp,
    "llama-cpp-python": LlamaCppPython,
    "transformers": TransformersServe,
}


def arguments() -> Namespace:
    added = ArgumentParser(
        parents=[options_parser(add_help=False)], description="replica of a runtime that was observed"
    )
    added.add_argument("--like", choices=REPLICAS, required=True)
    added.add_argument("--state", default="ready", help="loading, overloaded, dead, hung, embeddings, ...")
    added.add_argument("--opens-after", type=float, default=0, help="refuse connections for so many seconds")
    return added.parse_args()


async def serve(options: Namespace) -> None:
    replica = REPLICAS[options.like](options)
    loop = asyncio.get_running_loop()
    address = socket.socket()
    address.bind(("127.0.0.1", 0))
    ready: Path = options.ready_file
    draft = ready.with_suffix(".draft")
    draft.write_text(f"http://127.0.0.1:{address.getsockname()[1]}")
    if options.opens_after:
        draft.replace(ready)
        await asyncio.sleep(options.opens_after)  # bound and not listening: refused
    listener = await loop.create_server(lambda: Connection(replica), sock=address, backlog=1024)
    if not options.opens_after:
        draft.replace(ready)
    stopped = asyncio.Event()

    def leave() -> None:
        listener.close()
        replica.leave(stopped.set)

    loop.add_signal_handler(signal.SIGTERM, leave)
    await stopped.wait()


if __name__ == "__main__":
    asyncio.run(serve(arguments()))
