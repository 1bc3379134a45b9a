"""The API on a real socket, in a thread of the test process: what a client sees, and the yard behind it."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from openai import OpenAI

from app.api.main import create_app
from app.schemas.tokens import NewOrg, NewToken
from app.services import orgs, tokens
from app.services.context import Caller, Yard
from config.settings import ServerSettings
from tests.databases import Databases
from tests.migrated import migrate

ADMIN_KEY = "gk-the-first-admin-key-of-a-test"
START_SECONDS = 20.0
END_SECONDS = 2.0
LOOK_SECONDS = 0.01


@dataclass
class Served:
    """A running API. `admin` is a key of the operator's org."""

    url: str
    app: FastAPI
    admin: str = ADMIN_KEY

    @property
    def yard(self) -> Yard:
        """The yard of the running app."""
        yard: Yard = self.app.state.yard
        return yard

    def client(self, key: str = ADMIN_KEY, **options: Any) -> OpenAI:
        """The stock SDK, pointed at the server."""
        return OpenAI(base_url=f"{self.url}/v1", api_key=key, **options)

    def http(self, key: str | None = ADMIN_KEY) -> httpx.Client:
        """A plain HTTP client."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30)

    def operator(self) -> Caller:
        """The admin, as services know it."""
        return tokens.authenticate(self.yard, self.admin)

    def key(self, *scopes: str, org: str = "default", **more: Any) -> str:
        """Make a key with these scopes; the org is made when it is not there."""
        caller = self.operator()
        if org not in {known.name for known in orgs.listed(self.yard, caller)}:
            orgs.create(self.yard, caller, NewOrg(name=org))
        wanted = NewToken.model_validate({"name": "test", "scopes": list(scopes), "org": org} | more)
        return tokens.create(self.yard, caller, wanted).secret

    def shift(self, **delta: float) -> None:
        """Move the database's clock."""
        self.yard.store.clock_shift += timedelta(**delta)


def rows(count: int, *models: str, model: str = "m", endpoint: str = "/v1/chat/completions") -> bytes:
    """An input file of a batch; its rows take turns with `models`."""
    names = models or (model,)
    lines = [
        {
            "custom_id": f"row-{number}",
            "method": "POST",
            "url": endpoint,
            "body": {"model": names[number % len(names)], "messages": [{"role": "user", "content": str(number)}]},
        }
        for number in range(count)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


class QuickServer(uvicorn.Server):
    """Ends as uvicorn's own does, without its naps of a tenth of a second: hundreds of tests end one."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # noqa: ASYNC110 - whoever stops it is another thread
            await asyncio.sleep(LOOK_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - ours has none
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - uvicorn tells nobody
                    await asyncio.sleep(LOOK_SECONDS)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


@contextmanager
def serving(database_url: str, folder: Path, **settings: Any) -> Iterator[Served]:
    """Run the API on a free port until the end of the block."""
    found = ServerSettings(database_url=database_url, data_dir=folder, bootstrap_token=ADMIN_KEY, port=0, **settings)
    app = create_app(found)
    server = QuickServer(uvicorn.Config(app, port=0, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, name="api")
    thread.start()
    try:
        deadline = time.monotonic() + START_SECONDS
        while not server.started:
            assert thread.is_alive(), "the API ended at its start"
            assert time.monotonic() < deadline, "the API did not start in time"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Served(f"http://127.0.0.1:{port}", app)
    finally:
        server.should_exit = True
        thread.join(START_SECONDS)


@pytest.fixture
def served(databases: Databases, tmp_path: Path) -> Iterator[Served]:
    """The API on a socket, over SQLite and then PostgreSQL."""
    with serving(databases.copy_of(migrate), tmp_path / "data") as running:
        yield running


@pytest.fixture
def served_on_sqlite(sqlite_databases: Databases, tmp_path: Path) -> Iterator[Served]:
    """The API on a socket, for a test that does not depend on the database."""
    with serving(sqlite_databases.copy_of(migrate), tmp_path / "data") as running:
        yield running
