"""What docker-compose.yml says, read by Compose itself: no engine is asked."""

import json
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from config.broker_acl import user_of
from config.settings import WorkerSettings, known_names
from tests.docker.stack import BASE, ROOT, Stack, make_env, plain_environment, run

PROFILES = ("gpu", "ollama", "vllm")
ONCE = {"accounts", "migrate"}
"""What ends well before the others start."""
ALWAYS = ONCE | {"redis", "postgres", "api", "control", "beat", "flower", "worker"}
SECRETS = ("_TOKEN", "_KEY", "_PASSWORD")
BYE_SECONDS = 2


@pytest.fixture(scope="module")
def everything(stack: Stack) -> dict[str, dict[str, Any]]:
    """All services of all profiles, as Compose understands them."""
    profiles = [part for profile in PROFILES for part in ("--profile", profile)]
    return dict(json.loads(stack.compose(*profiles, "config", "--format", "json"))["services"])


def test_without_a_profile_there_is_a_whole_service_and_each_profile_adds_its_own(
    stack: Stack, everything: dict[str, Any]
) -> None:
    assert set(stack.compose("config", "--services").split()) == ALWAYS
    added = {"worker-gpu", "ollama", "worker-ollama", "vllm", "worker-vllm"}
    assert set(everything) == ALWAYS | added
    with_device = {name for name, service in everything.items() if "devices" in json.dumps(service.get("deploy", {}))}
    assert with_device == {"worker-gpu", "vllm"}


def test_without_an_env_it_refuses_and_says_what_to_do(compose: None, tmp_path: Path) -> None:
    (tmp_path / ".env").touch()
    command = ["docker", "compose", "--env-file", str(tmp_path / ".env"), "config", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=plain_environment())
    assert done.returncode != 0
    assert "make .env first, by sh deploy/new-env.sh" in done.stderr


def test_the_env_that_is_made_has_a_secret_of_its_own_for_each_that_is_needed(tmp_path: Path) -> None:
    made = make_env(tmp_path, name="gpuyard-test-env")
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    lines = [line for line in made.read_text().splitlines() if line and not line.startswith("#")]
    values = dict(line.split("=", 1) for line in lines)
    assert values.pop("COMPOSE_PROJECT_NAME") == "gpuyard-test-env"
    assert len(set(values.values())) == len(values) == 7
    assert all(re.fullmatch(r"(gk-)?[0-9a-f]{64}", value) for value in values.values()), values
    again = subprocess.run(["sh", tmp_path / "deploy" / "new-env.sh"], capture_output=True, check=False)
    assert again.returncode == 1
    assert made.read_text().splitlines()[-1] != ""


def test_every_variable_of_the_file_is_explained_in_the_example() -> None:
    used = set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "docker-compose.yml").read_text()))
    example = (ROOT / ".env.example").read_text()
    told = set(re.findall(r"^(?:# )?([A-Z_]+)=", example, re.MULTILINE))
    assert used == told


def test_defaults_in_the_example_are_those_of_the_file() -> None:
    file, example = (ROOT / "docker-compose.yml").read_text(), (ROOT / ".env.example").read_text()
    defaults = dict(re.findall(r"\$\{([A-Z_]+):-([^}]*)\}", file))
    told = dict(re.findall(r"^# ([A-Z_]+)=(.*)$", example, re.MULTILINE))
    assert told == defaults


def test_ports_are_published_on_the_loopback_alone(everything: dict[str, Any]) -> None:
    published = {name: port["host_ip"] for name, service in everything.items() for port in service.get("ports", ())}
    assert published == {"api": "127.0.0.1", "flower": "127.0.0.1"}


def test_keys_cross_no_network_in_the_open_and_flower_asks_for_one(everything: dict[str, Any]) -> None:
    assert everything["api"]["environment"]["GPUYARD_TLS"] == "proxy"
    assert "--read_only" in everything["flower"]["command"]
    assert everything["flower"]["environment"]["FLOWER_BASIC_AUTH"].startswith("admin:")


def test_models_are_fetched_once_and_every_runtime_says_when_it_can_be_asked(everything: dict[str, Any]) -> None:
    kept = {
        name: {(volume["type"], volume["source"], volume["target"]) for volume in everything[name]["volumes"]}
        for name in ("ollama", "vllm")
    }
    assert kept == {
        "ollama": {("volume", "ollama", "/root/.ollama")},
        "vllm": {("volume", "vllm", "/root/.cache/huggingface")},
    }
    images_with_their_own = {"api", "worker", "worker-gpu", "worker-ollama", "worker-vllm"}
    without = {name for name, service in everything.items() if not service.get("healthcheck", {}).get("test")}
    assert without == images_with_their_own | ONCE


def test_a_worker_has_longer_to_stop_than_its_drain_takes(everything: dict[str, Any]) -> None:
    workers = [service for name, service in everything.items() if name.startswith("worker")]
    assert len(workers) == 4
    for worker in workers:
        drain = float(worker["environment"]["GPUYARD_DRAIN_SECONDS"])
        minutes, seconds = re.fullmatch(r"(?:(\d+)m)?(\d+)s", worker["stop_grace_period"]).groups()  # type: ignore[union-attr]
        grace = 60 * int(minutes or 0) + int(seconds)
        assert grace > drain + WorkerSettings.model_fields["kill_after_seconds"].default + BYE_SECONDS


def test_what_is_ours_is_built_and_never_looked_for_in_a_registry(everything: dict[str, Any]) -> None:
    assert {service.get("pull_policy") for service in everything.values() if "build" in service} == {"never"}


def test_what_is_ours_has_no_rights_and_writes_into_volumes_alone(everything: dict[str, Any]) -> None:
    ours = {name: service for name, service in everything.items() if "build" in service}
    assert set(ours) == set(everything) - {"redis", "postgres", "ollama", "vllm"}
    for name, service in ours.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert {volume["type"] for volume in service.get("volumes", ())} <= {"volume"}, name


def test_workers_are_given_no_secret_but_their_own_key_and_the_password_of_their_pool(
    stack: Stack, everything: dict[str, Any]
) -> None:
    secrets = secrets_of(stack)
    for name, service in everything.items():
        if name.startswith(("worker", "beat", "ollama", "vllm")):
            own = {"GPUYARD_WORKER_KEY", "REDIS_GPU_PASSWORD"} if name.startswith("worker") else set()
            own |= {"REDIS_CONTROL_PASSWORD"} if name == "beat" else set()
            assert {secret for secret, value in secrets.items() if value in json.dumps(service)} == own, name


def test_each_side_has_its_own_account_at_the_broker(stack: Stack, everything: dict[str, Any]) -> None:
    """A worker has that of the pool whose queue it takes; redis-cli in the broker's container is the administrator."""
    seen = set()
    for name, service in everything.items():
        url = (service.get("environment") or {}).get("GPUYARD_BROKER_URL")
        if url is None:
            continue
        seen.add(name)
        queue = service["command"][service["command"].index("-Q") + 1] if name.startswith("worker") else "control"
        password = stack.env[f"REDIS_{queue.upper()}_PASSWORD"]
        assert url == f"redis://{user_of(queue)}:{password}@redis:6379/0", name
    assert seen == set(everything) - {"accounts", "redis", "postgres", "ollama", "vllm"}
    holders = {name for name, service in everything.items() if stack.env["REDIS_PASSWORD"] in json.dumps(service)}
    assert holders == {"accounts", "redis"}
    assert everything["redis"]["command"][-2:] == ["--aclfile", "/accounts/users.acl"]


def test_no_secret_is_an_argument_of_a_process(stack: Stack, everything: dict[str, Any]) -> None:
    """Everybody on the host may read those, health checks' included."""
    for name, service in everything.items():
        arguments = json.dumps([service.get(part) for part in ("command", "entrypoint")])
        arguments += json.dumps(service.get("healthcheck", {}).get("test"))
        assert not [secret for secret, value in secrets_of(stack).items() if value in arguments], name
        assert not re.search(r"requirepass|--pass|\s-a\s|redis://|--broker", arguments), name


def test_images_of_others_have_a_full_version(everything: dict[str, Any]) -> None:
    named = {name: service["image"] for name, service in everything.items() if "build" not in service}
    assert set(named) == {"redis", "postgres", "ollama", "vllm"}
    for image in (*named.values(), BASE):
        assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+(\.\d+)?(-[a-z0-9.]+)*", image), image
    # PostgreSQL alone has versions of two numbers.
    assert [image for image in (*named.values(), BASE) if not re.search(r":v?\d+\.\d+\.\d+", image)] == [
        everything["postgres"]["image"]
    ]
    froms = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert set(froms) - stages == {"${PYTHON}"}


def secrets_of(stack: Stack) -> dict[str, str]:
    """The keys and passwords of its .env, by name."""
    return {name: value for name, value in stack.env.items() if name.endswith(SECRETS)}


def test_every_setting_that_is_passed_is_one(everything: dict[str, Any]) -> None:
    passed = {name for service in everything.values() for name in service.get("environment") or {}}
    unknown = {name for name in passed if name.startswith("GPUYARD_")} - {f"GPUYARD_{n.upper()}" for n in known_names()}
    assert unknown == set()


def test_compose_finds_no_fault_with_it(stack: Stack) -> None:
    profiles = [part for profile in PROFILES for part in ("--profile", profile)]
    done = subprocess.run(
        stack.command(*profiles, "config", "--quiet"),
        capture_output=True,
        text=True,
        check=False,
        env=plain_environment(),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert run(["sh", "-n", str(ROOT / "deploy" / "new-env.sh")]) == ""
