import pytest

from config.queues import CONTROL, DEAD, check_pool_name, class_queue, pool_queue, setup_queue


def test_all_queues_of_a_pool_start_with_its_name() -> None:
    assert pool_queue("gpu") == "gpu"
    assert class_queue("gpu", "runs") == "gpu.runs"
    assert setup_queue("gpu", "host-1") == "gpu.setup.host-1"


@pytest.mark.parametrize(
    "name",
    ["", "GPU", "-gpu", "a.b", "a" * 64, "gpu\n", "gpü", CONTROL, DEAD, "celery", "unacked", "reply", "celeryev"],
)
def test_a_name_that_could_reach_another_queue_names_no_pool(name: str) -> None:
    with pytest.raises(ValueError, match=r"pool name|reserved"):
        check_pool_name(name)
