"""A fake of Ollama's server, made after its source: `python -m tests.fakes.ollama_server`. Real Ollama was not run.

Its own API (`/api/version`, `tags`, `show`, `ps`, `chat`, `generate`, `embed`, `pull`) and the OpenAI-compatible side.
`GET /stats` tells what it saw, `POST /reset` forgets it. The official `ollama` client works with it (test_ollama_fake).
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.fakes.ollama_engine import Cut, Engine, Stats, Status, full
from tests.fakes.ollama_openai import to_chat, to_completion, to_embeddings, to_responses
from tests.fakes.ollama_pulls import Pulls, Silence

Request = dict[str, Any]
Handler = Callable[[Request], Awaitable[Any]]


class Server:
    """Routes, and how answers go over the wire."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.engine = Engine(
            models=options.models.split(","),
            parallel=options.parallel,
            max_queue=options.max_queue,
            load_ms=options.load_ms,
            context=options.context,
            max_loaded=options.max_loaded,
        )
        self.pulls = Pulls()
        self.posts: dict[str, Handler] = {
            "/api/chat": self.chat,
            "/api/generate": self.generate,
            "/api/embed": self.engine.embed,
            "/api/show": self.show,
            "/v1/chat/completions": self.v1_chat,
            "/v1/completions": self.v1_completion,
            "/v1/embeddings": self.v1_embeddings,
            "/v1/responses": self.v1_responses,
        }

    # --- its own API

    async def chat(self, request: Request) -> Any:
        messages = request.get("messages") or []
        check_messages(messages)
        if not messages:
            await self.engine.runner(request.get("model", ""), request.get("options") or {})
            message = {"role": "assistant", "content": ""}
            return {"model": request["model"], "message": message, "done": True, "done_reason": "load"}
        texts = [message.get("content", "") for message in messages]
        images = [image for message in messages for image in message.get("images", [])]
        answer = await self.engine.generate(request, texts, images)
        message = {"role": "assistant", "content": answer.pop("text")}
        if "thinking" in answer:
            message["thinking"] = answer.pop("thinking")
        if request.get("tools") and "{{tool}}" in texts[-1]:
            name = request["tools"][0]["function"]["name"]
            call = {"index": 0, "name": name, "arguments": {"city": "Par\u00eds", "days": 2}}
            message |= {"content": "", "tool_calls": [{"id": "call_1", "function": call}]}
        return answer | {"message": message}

    async def generate(self, request: Request) -> Any:
        prompt = request.get("prompt", "")
        if not isinstance(prompt, str):
            raise Status(400, "json: cannot unmarshal array into Go struct field GenerateRequest.prompt of type string")
        if not prompt:
            await self.engine.runner(request.get("model", ""), request.get("options") or {})
            return {"model": request["model"], "response": "", "done": True, "done_reason": "load"}
        answer = await self.engine.generate(request, [prompt], request.get("images") or [])
        return answer | {"response": answer.pop("text")}

    async def show(self, request: Request) -> Any:
        if full(request.get("model", "")) not in self.engine.models:
            raise Status(404, f"model '{request.get('model')}' not found")
        return {"details": details(request["model"]), "model_info": {}, "capabilities": ["completion", "tools"]}

    def facts(self, path: str) -> Any:
        """Answer what is asked by GET."""
        engine = self.engine
        if path == "/api/version":
            return {"version": self.options.version}
        if path == "/api/tags":
            return {"models": [entry(name) for name in sorted(engine.models)]}
        if path == "/api/ps":
            listed = [*engine.loaded, *([engine.loading] if engine.loading else [])]
            return {"models": [entry(name) | {"size_vram": 0, "expires_at": WHEN} for name in listed]}
        if path == "/v1/models":
            return {"object": "list", "data": [{"id": name, "object": "model"} for name in sorted(engine.models)]}
        if path == "/stats":
            return engine.stats.__dict__ | {"pulls": dict(self.pulls.tries)}
        raise Status(404, "404 page not found")

    # --- OpenAI's

    async def v1_chat(self, request: Request) -> Any:
        if not request.get("messages"):
            raise Status(400, "[] is too short - 'messages'")
        return to_chat(await self.chat({"model": request.get("model", ""), "messages": request["messages"]}))

    async def v1_completion(self, request: Request) -> Any:
        return to_completion(await self.generate(request))

    async def v1_embeddings(self, request: Request) -> Any:
        if not request.get("input"):
            raise Status(400, "invalid input")
        return to_embeddings(await self.engine.embed(request))

    async def v1_responses(self, request: Request) -> Any:
        text = request.get("input", "")
        messages = [{"role": "user", "content": text}]
        return to_responses(await self.chat({"model": request.get("model", ""), "messages": messages}))

    # --- the wire

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request after another until the client goes away."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                method, path, headers = await head(reader)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                work = asyncio.ensure_future(self.answer(method, path, body, writer))
                gone = asyncio.ensure_future(reader.read(1))
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    work.cancel()
                    self.engine.stats.aborted += 1
                    break
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
                if not work.result():
                    break
        writer.close()

    async def answer(self, method: str, path: str, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Write one answer; False: the connection is over."""
        try:
            if path == "/reset":
                self.engine.stats = Stats()
                return await plain(writer, 200, {})
            if method != "POST":
                return await plain(writer, 200, self.facts(path))
            self.engine.stats.requests[path] += 1
            request = read(body)
            self.engine.stats.bodies = [*self.engine.stats.bodies[-399:], {"path": path} | request]
            if path == "/api/pull":
                return await self.pull(request, writer)
            answer = await self.posts.get(path, nowhere)(request)
            if path.startswith("/api/") and request.get("stream", path in {"/api/chat", "/api/generate"}):
                return await streamed(writer, one(answer))
            return await plain(writer, 200, answer)
        except Status as refusal:
            return await plain(writer, refusal.status, in_shape(path, refusal))
        except Cut:
            return False

    async def pull(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        model = request.get("model") or request.get("name", "")
        if model.startswith("refused"):
            raise Status(400, "invalid model name")
        return await streamed(writer, self.pulled(model))

    async def pulled(self, model: str) -> AsyncIterator[Any]:
        async for line in self.pulls.lines(model):
            if line.get("status") == "success":
                self.engine.models.add(full(model))
            yield line


async def nowhere(request: Request) -> Any:
    raise Status(404, "404 page not found")


WHEN = "2026-08-21T12:00:00.123456789Z"


def details(name: str) -> dict[str, Any]:
    family = "qwen3vl" if "qwen3vl" in name else "bert" if "embed" in name else "llama"
    return {"format": "gguf", "family": family, "families": [family], "parameter_size": "1B", "parent_model": ""}


def entry(name: str) -> dict[str, Any]:
    return {"name": name, "model": name, "modified_at": WHEN, "size": 1, "digest": "d" * 64, "details": details(name)}


def check_messages(messages: Any) -> None:
    """Refuse what Go's decoder would."""
    if not isinstance(messages, list):
        raise Status(400, f"json: cannot unmarshal {go_kind(messages)} into Go struct field ChatRequest.messages")
    for message in messages:
        content = message.get("content", "") if isinstance(message, dict) else message
        if not isinstance(message, dict) or not isinstance(content, str):
            raise Status(400, f"json: cannot unmarshal {go_kind(content)} into Go struct field Message.content")
        for call in message.get("tool_calls", []):
            if not isinstance(call["function"]["arguments"], dict):
                raise Status(400, "json: cannot unmarshal string into Go struct field ToolCallFunction.arguments")


def go_kind(value: Any) -> str:
    return {str: "string", list: "array", dict: "object", bool: "bool"}.get(type(value), "number")


def read(body: bytes) -> Request:
    if not body:
        raise Status(400, "missing request body")
    try:
        request = json.loads(body)
    except ValueError:
        raise Status(400, "invalid character '}' looking for beginning of value") from None
    if not isinstance(request, dict):
        raise Status(400, f"json: cannot unmarshal {go_kind(request)} into Go value of type api.ChatRequest")
    return request


def in_shape(path: str, refusal: Status) -> Any:
    """Write a refusal as that side of the server does."""
    if not path.startswith("/v1/"):
        return {"error": str(refusal)}
    kind = {400: "invalid_request_error", 404: "not_found_error"}.get(refusal.status, "api_error")
    return {"error": {"message": str(refusal), "type": kind, "param": None, "code": None}}


async def head(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return method, path.partition("?")[0], headers


def go_json(value: Any) -> bytes:
    """Write JSON as Go does: UTF-8, but for two characters that some take for line ends."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").encode()


async def one(line: Any) -> AsyncIterator[Any]:
    yield line


async def plain(writer: asyncio.StreamWriter, status: int, content: Any) -> bool:
    body = go_json(content)
    writer.write(
        f"HTTP/1.1 {status} Status\r\ncontent-type: application/json; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    await writer.drain()
    return True


async def streamed(writer: asyncio.StreamWriter, lines: AsyncIterator[Any]) -> bool:
    """Write NDJSON as it comes; an answer that breaks off ends in a proper last chunk, as Go's does."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n")
    with contextlib.suppress(Silence):
        async for line in lines:
            data = go_json(line) + b"\n"
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="fake of an Ollama server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--models", default="mock,think,embed", help="installed, separated by commas")
    parser.add_argument("--version", default="0.40.12")
    parser.add_argument("--parallel", type=int, default=1, help="OLLAMA_NUM_PARALLEL")
    parser.add_argument("--max-queue", type=int, default=512, help="OLLAMA_MAX_QUEUE")
    parser.add_argument("--max-loaded", type=int, default=3, help="OLLAMA_MAX_LOADED_MODELS")
    parser.add_argument("--load-ms", type=float, default=0)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--ready-file", type=Path, help="written with the URL once it listens")
    return parser.parse_args()


async def serve(options: argparse.Namespace) -> None:
    server = Server(options)
    listener = await asyncio.start_server(server.client, "127.0.0.1", options.port, limit=2**26, backlog=1024)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    if options.ready_file:
        draft = options.ready_file.with_suffix(".draft")
        draft.write_text(url)
        draft.replace(options.ready_file)
    print(url, flush=True)  # noqa: T201 - the address, for a person
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    os._exit(0)  # rows in flight are cut


if __name__ == "__main__":
    asyncio.run(serve(arguments()))
