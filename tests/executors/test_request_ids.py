"""Ids of requests are told apart by their first digits already: ids of tool calls are made of these."""

import uuid

from executors.request_ids import new_request_id


def test_ids_differ_from_their_first_digits_on_and_are_uuids() -> None:
    ids = [new_request_id() for _ in range(1000)]
    assert len({one[:8] for one in ids}) == 1000
    for one in ids:
        read = uuid.UUID(one)
        assert (str(read), read.version, read.variant) == (one, 4, uuid.RFC_4122)
