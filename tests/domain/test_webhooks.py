"""How webhooks are signed, when they are tried again, and where they may go."""

import base64
import json

import pytest

from app.domain import webhooks
from app.domain.batches import ENDED, BatchState

KEY = b"k" * 32


def test_the_four_ends_of_a_batch_are_events_and_nothing_else_is() -> None:
    told = {state for state in BatchState if webhooks.event_type(state) is not None}
    assert told == ENDED
    assert webhooks.EVENT_TYPES == ("batch.cancelled", "batch.completed", "batch.expired", "batch.failed")


def test_the_signature_is_the_one_of_the_standards_own_example() -> None:
    """The example of standardwebhooks.com's libraries."""
    headers = webhooks.headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_with_two_secrets_it_is_signed_by_both() -> None:
    first, second = (webhooks.secret(KEY, "whe_1", generation) for generation in (1, 2))
    both = webhooks.headers("wh_1", 1, b"{}", [second, first])["webhook-signature"].split()
    alone = [webhooks.headers("wh_1", 1, b"{}", [each])["webhook-signature"] for each in (second, first)]
    assert both == alone


def test_a_secret_is_its_own_for_each_key_endpoint_and_generation() -> None:
    made = {
        webhooks.secret(key, endpoint, generation)
        for key in (KEY, b"other")
        for endpoint in ("whe_1", "whe_2")
        for generation in (1, 2)
    }
    assert len(made) == 8
    assert all(len(base64.b64decode(each.removeprefix("whsec_"), validate=True)) == 24 for each in made)


def test_a_hint_tells_two_secrets_apart_and_gives_neither_away() -> None:
    secret = webhooks.secret(KEY, "whe_1", 1)
    assert webhooks.hint(secret).endswith(secret[-4:])
    assert len(webhooks.hint(secret)) < 12


def test_every_try_sends_the_same_bytes_under_the_same_id() -> None:
    body = webhooks.payload("batch.completed", "batch_ab", created_at=7)
    assert body == webhooks.payload("batch.completed", "batch_ab", created_at=7)
    assert json.loads(body) == {
        "id": "evt_ab",
        "object": "event",
        "type": "batch.completed",
        "created_at": 7,
        "data": {"id": "batch_ab"},
    }
    assert webhooks.delivery_id("batch_ab", 2) == "wh_ab_2"


def test_the_pauses_grow_to_four_hours_and_all_tries_take_three_days() -> None:
    pauses = [webhooks.pause_seconds(tries) for tries in range(1, webhooks.MAX_TRIES)]
    assert pauses[:3] == [5, 10, 20]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 4 * 3600
    assert 3 * 86_400 < sum(pauses) < 4 * 86_400
    assert webhooks.pause_seconds(10**6) == 4 * 3600


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.169.254",
            "0.1.2.3",
            "224.0.0.1",
        ),
        *("255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1"),
        *("::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "2001:0:a00:1::"),
        *("::10.0.0.1", "::ffff:0:a00:1", "64:ff9b:1::a00:1", "64:ff9b:1:fffe::a00:1", "3fff::1", "5f00::1"),
        *("192.0.0.8", "192.88.99.1"),
    ],
)
def test_no_address_of_a_private_network_is_reached_however_it_is_written(address: str) -> None:
    assert not webhooks.may_reach(webhooks.parse_address(address), ())


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_a_public_address_is_reached(address: str) -> None:
    assert webhooks.may_reach(webhooks.parse_address(address), ())


def test_an_allowed_network_is_reached_and_its_neighbour_is_not() -> None:
    allowed = webhooks.networks(["10.1.0.0/16", "fd00::/8"])
    reached = [
        webhooks.may_reach(webhooks.parse_address(text), allowed) for text in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1")
    ]
    assert all(reached)
    assert not webhooks.may_reach(webhooks.parse_address("10.2.0.1"), allowed)
    assert not webhooks.may_reach(webhooks.parse_address("169.254.169.254"), allowed)


def test_what_is_no_network_is_named() -> None:
    with pytest.raises(ValueError, match=r"10\.1\.0\.1/16"):
        webhooks.networks(["10.1.0.1/16"])
