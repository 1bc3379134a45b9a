"""Where things live when nobody said: configuration files and data, as root and as a user (DESIGN 10)."""

import os
from pathlib import Path

from platformdirs import user_config_path, user_data_path

FILE_NAME = "gpuyard.toml"


def data_dir() -> Path:
    """`/var/lib/gpuyard` as root (unless XDG_DATA_HOME says otherwise), else `~/.local/share/gpuyard` on Linux."""
    is_system = os.geteuid() == 0 and not os.environ.get("XDG_DATA_HOME")
    return Path("/var/lib/gpuyard") if is_system else user_data_path("gpuyard")


def state_dir() -> Path:
    """The folder a worker started by hand keeps its identity and its spool in."""
    return data_dir() / "worker"


def local_file(folder: Path) -> Path:
    """The 0600 file in a data folder by which the CLI finds the `gpuyard up` that runs there."""
    return folder / "local.json"


def local_files() -> tuple[Path, ...]:
    """Where the CLI looks for it: the data folder the environment names, then the usual one."""
    named = os.environ.get("GPUYARD_DATA_DIR")
    return tuple(local_file(folder) for folder in ((Path(named),) if named else ()) + (data_dir(),))


def config_files() -> tuple[Path, ...]:
    """The settings files looked for without `--config`, first found wins (C-05)."""
    return (Path("/etc/gpuyard") / FILE_NAME, user_config_path("gpuyard") / FILE_NAME)
