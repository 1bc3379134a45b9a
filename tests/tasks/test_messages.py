import pytest

from tasks.messages import one_id


def test_one_id_is_a_message() -> None:
    assert one_id("run_batch", ("batch_01J9Z",), {}) == "batch_01J9Z"


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((7,), {}),
        ((None,), {}),
        (({"id": "batch_1"},), {}),
        (("batch_1", "batch_2"), {}),
        (("batch_1",), {"pool": "other"}),
        (("batch_1\n[critical] forged line",), {}),
        (("x" * 50_000_000,), {}),
        (("../../etc/passwd",), {}),
        (("",), {}),
    ],
)
def test_anything_else_is_dropped_with_a_short_line(
    args: tuple[object, ...], kwargs: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert one_id("run_batch", args, kwargs) is None

    (line,) = capsys.readouterr().out.splitlines()
    assert "message dropped" in line
    assert len(line) < 400
