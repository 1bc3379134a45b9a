"""P2's last line, on a real vLLM: a batch by gpuyard on `vllm serve` beside `vllm run-batch`, which has its own engine.

`run-batch` does not say when its engine is ready, so it also runs a file of one row: the difference is the other rows'.
gpuyard's time is from the first claim to the finished file; its engine runs before.
"""

import json
import os
import subprocess
import time
from pathlib import Path

from benchmarks.product import Product
from benchmarks.targets import Finding
from tests.vllm.engine import GENERATE, MODEL, QUIET, VllmServer, home, make_model

TOKENS = 16
MAX_SECONDS = 1200


def run_batch(product: Product, folder: Path, *, rounds: int, rows: int) -> list[Finding]:
    """Measure both in turn, one engine at a time: two would share the cores."""
    venv = home()
    if venv is None:
        raise SystemExit("there is no vLLM: make bench-vllm installs one")
    model = make_model(venv, folder)
    ratios = []
    for number in range(rounds):
        alone = _run_batch(venv, model, folder, rows) - _run_batch(venv, model, folder, 1)
        ours = _gpuyard(product, venv, model, folder, rows, f"vllm-{number}")
        ratios.append(alone / ours)
    return [Finding.of("P2.vllm", ratios)]


def _file(folder: Path, rows: int) -> Path:
    path = folder / f"{rows}.jsonl"
    with path.open("w") as file:
        for number in range(rows):
            message = {"role": "user", "content": f"[[row-{number}]] say something"}
            # As many tokens for everybody: the tiny model's words end where they like.
            body = {"model": MODEL, "messages": [message], "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
            row = {"custom_id": f"row-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(row) + "\n")
    return path


def _run_batch(venv: Path, model: Path, folder: Path, rows: int) -> float:
    output = folder / "run-batch.jsonl"
    output.unlink(missing_ok=True)
    argv = [str(venv / "bin" / "vllm"), "run-batch", "-i", str(_file(folder, rows)), "-o", str(output)]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with (folder / "run-batch.log").open("ab") as log:
        began = time.monotonic()
        subprocess.run(
            [*argv, "--model", str(model), "--served-model-name", MODEL, *GENERATE],
            env=inherited | QUIET,
            stdout=log,
            stderr=log,
            cwd=folder,
            check=True,
            timeout=MAX_SECONDS,
        )
        took = time.monotonic() - began
    _check(output.read_bytes(), rows)
    return took


def _gpuyard(product: Product, venv: Path, model: Path, folder: Path, rows: int, name: str) -> float:
    server = VllmServer(venv, model, folder)
    try:
        server.start()
        with product.gpu_worker(name, server):
            batch_id = product.create(product.upload(_file(folder, rows)))
            ended = product.until_ended(batch_id, [], 0, seconds=MAX_SECONDS)
            output = product.sdk.batches.retrieve(batch_id).output_file_id
            assert output is not None, product.sdk.batches.retrieve(batch_id)  # noqa: S101 - a bench that fails says so
            _check(product.sdk.files.content(output).content, rows)
            return ended - product.moment(batch_id, "batch.in_progress")
    finally:
        server.close()


def _check(output: bytes, rows: int) -> None:
    found = [json.loads(line) for line in output.splitlines()]
    good = {line["custom_id"] for line in found if line["response"]["status_code"] == 200}  # noqa: PLR2004 - HTTP: OK
    if len(found) != rows or len(good) != rows:
        raise RuntimeError(f"{len(good)} good answers of {len(found)} for {rows} rows")
