import pytest

from config.broker_url import for_celery, for_redis, is_plain_to_another_host, masked


def test_a_unix_socket_has_two_spellings() -> None:
    ours = for_celery("unix:///run/broker.sock?db=2")

    assert ours == "redis+socket:///run/broker.sock?virtual_host=2"
    assert for_redis(ours) == "unix:///run/broker.sock?db=2"


@pytest.mark.parametrize("query", ["", "?ssl_cert_reqs=none", "?ssl_cert_reqs=optional"])
def test_tls_without_certificate_checks_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match="ssl_cert_reqs=required"):
        for_celery(f"rediss://broker:6379/0{query}")


def test_tls_with_certificate_checks_is_taken() -> None:
    url = "rediss://broker:6379/0?ssl_cert_reqs=required&ssl_ca_certs=/ca.pem"

    assert for_celery(url) == url


def test_another_kind_of_broker_is_refused() -> None:
    with pytest.raises(ValueError, match="redis://"):
        for_celery("amqp://broker")


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("redis://10.0.0.1/0", True),
        ("redis://broker:6379/0", True),
        ("redis://localhost/0", False),
        ("redis://127.0.0.1:6380", False),
        ("redis://[::1]:6380", False),
        ("redis+socket:///run/x.sock", False),
        ("rediss://10.0.0.1?ssl_cert_reqs=required", False),
    ],
)
def test_only_plain_tcp_to_another_host_is_in_the_open(url: str, plain: bool) -> None:
    assert is_plain_to_another_host(url) is plain


def test_a_password_is_masked() -> None:
    assert masked("redis://gpu:s3cret@broker:6379/0") == "redis://gpu:***@broker:6379/0"
    assert masked("redis://broker:6379/0") == "redis://broker:6379/0"
