from pathlib import Path

import pytest

from config.broker_url import for_celery, for_redis, is_plain_to_another_host, masked, missing_file
from config.errors import SettingsError
from config.settings import CelerySettings, load


def test_a_unix_socket_has_two_spellings() -> None:
    ours = for_celery("unix:///run/broker.sock?db=2")

    assert ours == "redis+socket:///run/broker.sock?virtual_host=2"
    assert for_redis(ours) == "unix:///run/broker.sock?db=2"


@pytest.mark.parametrize(
    "query",
    ["", "?ssl_cert_reqs=none", "?ssl_cert_reqs=optional", "?ssl_cert_reqs=required&ssl_cert_reqs=none"],
)
def test_tls_without_certificate_checks_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match="ssl_cert_reqs=required"):
        for_celery(f"rediss://broker:6379/0{query}")


def test_tls_with_certificate_checks_is_taken() -> None:
    url = "rediss://broker:6379/0?ssl_cert_reqs=required&ssl_ca_certs=/ca.pem"

    assert for_celery(url) == url


@pytest.mark.parametrize("word", ["Required", "CERT_REQUIRED"])
def test_the_check_is_spelled_so_that_both_libraries_know_it(word: str) -> None:
    assert for_celery(f"rediss://broker/0?ssl_cert_reqs={word}&a=b") == "rediss://broker/0?ssl_cert_reqs=required&a=b"


def test_a_certificate_is_never_taken_for_another_hosts() -> None:
    with pytest.raises(ValueError, match="ssl_check_hostname"):
        for_celery("rediss://broker/0?ssl_cert_reqs=required&ssl_check_hostname=False")


def test_a_file_of_certificates_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    url = f"rediss://broker/0?ssl_cert_reqs=required&ssl_ca_certs={tmp_path}"

    assert missing_file(f"{url}/ca.pem") is None
    assert missing_file(f"{url}/no.pem") == f"{tmp_path}/no.pem"
    with pytest.raises(SettingsError, match=r"there is no file .*/no\.pem"):
        load(CelerySettings, cli={"broker_url": f"{url}/no.pem"})


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cr/et@broker:6379/0",
        "redis://:s3cr#et@broker:6379/0",
        "redis://:s3cr?et@broker:6379/0",
        "redis://:12/s3cret@broker:6379/0",
        "redis://:s3cret@broker:99999/0",
        "redis://:s3cret@broker:0/0",
        "redis://:s3cret@[broker/0",
        "sentinel://:s3cret@one:26379;sentinel://:s3c/ret@two:26379",
    ],
)
def test_one_that_cannot_be_read_is_told_without_its_password(url: str) -> None:
    with pytest.raises(SettingsError, match="has to be percent-encoded") as caught:
        load(CelerySettings, cli={"broker_url": url})
    assert "s3c" not in str(caught.value)
    assert for_celery("redis://:s3%2Fcr%23et@broker:6379/0") == "redis://:s3%2Fcr%23et@broker:6379/0"


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
        ("http://10.0.0.1:8765", True),
        ("http://127.0.0.1:8765", False),
        ("https://10.0.0.1", False),
    ],
)
def test_only_plain_tcp_to_another_host_is_in_the_open(url: str, plain: bool) -> None:
    assert is_plain_to_another_host(url) is plain


def test_a_password_is_masked() -> None:
    assert masked("redis://gpu:s3cret@broker:6379/0") == "redis://gpu:***@broker:6379/0"
    assert masked("redis://broker:6379/0") == "redis://broker:6379/0"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:s3/cr#e?t@broker:6379/0", "redis://:***@broker:6379/0"),
        ("redis://:s3@cret@broker/0", "redis://:***@broker/0"),
        (
            "sentinel://:s3;cret@one:26379;sentinel://:s3cret@two:26379",
            "sentinel://:***@one:26379;sentinel://:***@two:26379",
        ),
        ("redis://broker/0?password=s3cret&db=1", "redis://broker/0?password=***&db=1"),
        ("postgresql://yard@/yard?host=/run&sslpassword=s3cret", "postgresql://yard@/yard?host=/run&sslpassword=***"),
    ],
)
def test_a_password_is_masked_wherever_it_stands_and_however_wrongly(url: str, shown: str) -> None:
    assert masked(url) == shown
