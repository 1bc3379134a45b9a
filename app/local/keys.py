"""The keys of an installation that `gpuyard up` runs, in its data folder: one for its user, one for its workers."""

import secrets
from collections.abc import Callable
from pathlib import Path

from app.local import private_files

KEY_BYTES = 32


class Keys:
    """`keys.json`, 0600. The API makes the admin key its first token; the workers' is made through the API."""

    def __init__(self, path: Path, *, admin: str | None = None) -> None:
        self.path = path
        self._found = private_files.read(path)
        if admin is not None and admin != self._found.get("api_key"):
            self._found = {"api_key": admin}

    def admin(self) -> str:
        """The admin key, made at the first start."""
        if "api_key" not in self._found:
            self._keep("api_key", f"gk-{secrets.token_urlsafe(KEY_BYTES)}")
        return str(self._found["api_key"])

    def worker(self, create: Callable[[], str], *, is_known: Callable[[str], bool] = lambda _key: True) -> str:
        """The workers' key, made by `create` at the first start, and where the database does not know the one kept."""
        if "worker_key" not in self._found or not is_known(str(self._found["worker_key"])):
            self._keep("worker_key", create())
        return str(self._found["worker_key"])

    def _keep(self, name: str, key: str) -> None:
        self._found[name] = key
        private_files.write(self.path, self._found)
