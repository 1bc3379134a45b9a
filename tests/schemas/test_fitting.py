"""A message is made of as much as fits its bounds."""

from typing import Any

import pytest

from app.schemas.fitting import fit
from app.schemas.workers import GpuSample, HostSample, RuntimeInfo

GPU = {"index": 0, "name": "a"}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"load1": 0.5, "cpus": 4}, {"load1": 0.5, "cpus": 4}),
        ({"load1": 0.5, "disk_free": 10**400, "cpus": -1}, {"load1": 0.5}),
        ({"load1": float("nan"), "driver": "x" * 201}, {}),
        ({"gpus": [GPU, {"index": -1, "name": "b"}, 7, {**GPU, "memory_used": "much"}]}, {"gpus": [GPU, GPU]}),
        ({"gpus": [GPU] * 65, "cpus": 4}, {"cpus": 4}),
        ({"gpus": None}, {}),
    ],
)
def test_what_does_not_fit_is_left_out(value: dict[str, Any], kept: dict[str, Any]) -> None:
    before = repr(value)
    assert fit(HostSample, value) == HostSample.model_validate(kept)
    assert repr(value) == before


@pytest.mark.parametrize(
    "value", [{"kind": "vllm", "alive": True}, {"name": 7, "kind": "vllm", "alive": True}, 7, None]
)
def test_without_what_it_must_have_there_is_none(value: object) -> None:
    assert fit(RuntimeInfo, value) is None


def test_messages_inside_are_kept_as_they_are() -> None:
    gpus = [GpuSample(index=0, name="a")]
    assert fit(HostSample, {"gpus": gpus, "load1": -1}) == HostSample(gpus=gpus)
