"""An authority and a server's certificate, made by the commands that docs/operate/tls.md shows to an operator."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "operate" / "tls.md"
_SCRIPT = re.compile(r"```sh\n(# An authority.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Authority:
    """Files in one folder, named as on the page."""

    folder: Path

    @property
    def ca(self) -> Path:
        """What clients trust."""
        return self.folder / "ca.pem"

    @property
    def certificate(self) -> Path:
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"


def has_openssl() -> bool:
    return shutil.which("openssl") is not None


def make_authority(folder: Path, *addresses: str) -> Authority:
    """Run the page's commands; the certificate names `addresses`, too."""
    found = _SCRIPT.search(PAGE.read_text(encoding="utf-8"))
    assert found, f"{PAGE} makes no certificates"
    folder.mkdir(parents=True, exist_ok=True)
    names = ",".join(["IP:127.0.0.1", *(f"IP:{address}" for address in addresses)])
    script = found[1].replace("IP:127.0.0.1", names)
    argv, environment = ["/bin/sh", "-euc", script], os.environ | {"HOST": "gpuyard.example.org"}
    made = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return Authority(folder)
