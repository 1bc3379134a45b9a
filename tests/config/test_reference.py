from typing import get_args

import pytest
from pydantic import SecretStr

from config.reference import rows, shown
from config.settings import ROLES, ServerSettings, WorkerSettings, load_with_origins


def test_every_setting_is_described() -> None:
    assert [row.name for row in rows() if not row.description.endswith(".")] == []


def test_a_shared_setting_names_all_its_roles() -> None:
    by_name = {row.name: row for row in rows()}

    assert by_name["renew_seconds"].roles == ("server", "worker")
    assert by_name["renew_seconds"].variable == "GPUYARD_RENEW_SECONDS"
    assert by_name["api_key"].roles == ("worker", "client")
    assert by_name["stop_grace_seconds"].default == "3 * renew_seconds"
    assert by_name["max_file_bytes"].default == "209715200"


def test_no_secret_is_ever_shown() -> None:
    settings, origins = load_with_origins(
        WorkerSettings,
        cli={
            "api_key": "gk-abc",
            "runtime_api_key": "sk-x",
            "broker_url": "redis://u:pw@127.0.0.1/0",
            "runtime_url": ("http://u:pw@10.0.0.1:8000", "http://10.0.0.2:8000"),
        },
    )
    values = {name: value for name, value, _ in shown(settings, origins)}

    assert values["api_key"] == values["runtime_api_key"] == "***"
    assert values["broker_url"] == "redis://u:***@127.0.0.1/0"
    assert values["runtime_url"] == "http://u:***@10.0.0.1:8000, http://10.0.0.2:8000"


@pytest.mark.parametrize("role", ROLES.values())
def test_whatever_is_called_a_key_token_or_password_is_secret(role: type[ServerSettings]) -> None:
    named = {name for name in role.model_fields if name.endswith(("api_key", "token", "password", "_url"))}
    shown_to_all = {name for name in named if SecretStr not in _types(role, name)}

    assert shown_to_all <= {"server_url", "runtime_url"}


def _types(role: type[ServerSettings], name: str) -> tuple[object, ...]:
    annotation = role.model_fields[name].annotation
    return (annotation, *get_args(annotation))
