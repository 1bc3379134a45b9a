import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "tasks", "executors", "config")
MAX_LINES = 400
LONG_BY_NATURE = frozenset({"app/db/tables.py"})
NAMES_THAT_SAY_NOTHING = frozenset(
    {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc", "base_utils"}
)
NAMES_THAT_SHADOW_A_PACKAGE = frozenset(
    {"celery", "redis", "kombu", "fastapi", "pydantic", "openai", "typing", "queue"}
)


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in (ROOT / folder).rglob("*.py") if "versions" not in path.parts)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_folder_says_what_lives_in_it() -> None:
    folders = {path.parent for path in sources(*PACKAGES)}
    silent = [name_of(folder) for folder in folders if not (folder / "__init__.py").is_file() or not says(folder)]
    assert not silent


def says(folder: Path) -> bool:
    return ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) is not None


def test_no_room_is_empty() -> None:
    folders = {path.parent for path in sources(*PACKAGES)}
    empty = [
        name_of(folder)
        for folder in folders
        if not any(path.name != "__init__.py" for path in folder.iterdir() if not path.name.startswith("__pycache__"))
    ]
    assert not empty


def test_no_file_is_too_long_to_read_at_one_sitting() -> None:
    long = {name_of(path): count_lines(path) for path in sources(*PACKAGES, "tests")}
    assert not {name: lines for name, lines in long.items() if lines > MAX_LINES and name not in LONG_BY_NATURE}


def count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_no_name_says_nothing() -> None:
    assert not [name_of(path) for path in sources(*PACKAGES, "tests") if path.stem in NAMES_THAT_SAY_NOTHING]


def test_no_folder_of_the_tests_or_the_settings_shadows_a_package() -> None:
    """`config/celery.py` or `tests/redis/` would be imported in the package's place from some working directories."""
    tests = [folder.name for folder in (ROOT / "tests").iterdir() if folder.is_dir()]
    settings = [path.stem for path in sources("config")]
    assert not NAMES_THAT_SHADOW_A_PACKAGE & {*tests, *settings}
    assert not (ROOT / "app" / "app.py").exists(), "`celery -A app` would find it before app/celery.py"


def test_test_folders_are_no_packages() -> None:
    assert not [name_of(path) for path in (ROOT / "tests").rglob("__init__.py")]


def test_one_noun_has_one_name_in_every_room() -> None:
    """`db/lease.py` beside `domain/leases.py` would be two names for one noun. The agent names files for loops."""
    names: dict[str, set[str]] = {}
    for path in sources("app"):
        if "worker" in path.parts:
            continue
        names.setdefault(path.stem.removesuffix("s").removesuffix("e"), set()).add(path.stem)
    assert not [spellings for spellings in names.values() if len(spellings) > 1]


def test_errors_never_wear_fastapi_s_envelope() -> None:
    """HTTPException answers `{"detail": …}`; every error of the API is OpenAI's envelope."""
    users = [name_of(path) for path in sources("app") if "HTTPException(" in path.read_text(encoding="utf-8")]
    assert not users


def test_nobody_but_the_apps_the_tasks_the_agent_and_dispatch_imports_celery() -> None:
    allowed = ("app/celery", "tasks/", "app/worker/", "app/control/", "app/services/dispatch.py")
    users = [name_of(path) for path in sources(*PACKAGES) if "celery" in imports(path)]
    assert not [name for name in users if not name.startswith(allowed)]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_locks_name_no_index_and_hash_every_file() -> None:
    for lock in sorted((ROOT / "locks").glob("*.txt")):
        text = lock.read_text(encoding="utf-8")
        assert "://" not in text, lock.name
        assert "--index" not in text, lock.name
        pins = [line for line in text.splitlines() if "==" in line]
        assert pins
        assert all(line.endswith("\\") for line in pins), f"{lock.name}: a pin without hashes"
