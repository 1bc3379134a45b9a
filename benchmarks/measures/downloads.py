"""P14: downloads whose blocks are compared with their checksums, beside downloads of a content that has none."""

import http.client
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.product import Product
from benchmarks.targets import Finding

MIB = 1024 * 1024
SIZE = 128 * MIB
TIMES = 6
"""Turns of a round, of which the quickest counts: machines stall."""


def downloads(product: Product, folder: Path, rounds: int) -> list[Finding]:
    """Take turns between the two, so that a slow moment of the machine meets both; gives the ratio of each round."""
    source = folder / "download.bin"
    with source.open("wb") as file:
        for _ in range(SIZE // MIB):
            file.write(os.urandom(MIB))
    checked, unchecked = product.upload(source), product.upload(source)
    with closing(sqlite3.connect(product.installation.data / "gpuyard.db")) as database, database:
        key = "SELECT blob_key FROM file WHERE id = ?"
        database.execute(f"UPDATE blob SET block_sums = NULL WHERE key = ({key})", (unchecked,))
    _seconds(product, checked)  # the first one finds no connection and no page in memory
    ratios = []
    for _ in range(rounds):
        turns = [(_seconds(product, checked), _seconds(product, unchecked)) for _ in range(TIMES)]
        best = dict(zip((checked, unchecked), map(min, zip(*turns, strict=True)), strict=True))
        rates = {name: SIZE / MIB / seconds for name, seconds in best.items()}
        print(f"download: {rates[checked]:.0f} MiB/s, without checksums {rates[unchecked]:.0f}", flush=True)
        ratios.append(best[unchecked] / best[checked])
    return [Finding.of("P14.download", ratios)]


def _seconds(product: Product, file_id: str) -> float:
    """Read a whole file by a client that costs next to nothing."""
    where = urlsplit(product.ready["url"])
    buffer = bytearray(MIB)
    with closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)) as connection:
        began = time.perf_counter()
        headers = {"authorization": str(product.http.headers["authorization"])}
        connection.request("GET", f"/v1/files/{file_id}/content", headers=headers)
        answer = connection.getresponse()
        total = 0
        while count := answer.readinto(buffer):
            total += count
        seconds = time.perf_counter() - began
    if (answer.status, total) != (http.client.OK, SIZE):
        raise RuntimeError(f"HTTP {answer.status} with {total} bytes")
    return seconds
