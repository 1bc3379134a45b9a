"""Where a webhook goes, and how little of the answer it waits for: real sockets, and a resolver that lies."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from app.domain.webhooks import networks
from app.services import posting
from tests.fakes.webhook_receiver import TLS, WebhookReceiver

HERE = networks(["127.0.0.0/8"])


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as found:
        yield found


def post(
    url: str,
    *,
    allowed: object = HERE,
    timeout: float = 20.0,
    resolve: object = None,
    operator: bool = True,
    org: str = "org_1",
) -> posting.Answer:
    """What the org is told; the operator's is told everything."""
    call = posting.Call(org, url, b"{}", {"webhook-id": "wh_1"})
    answer = asyncio.run(posting.post(call, allowed=allowed, timeout_seconds=timeout, resolve=resolve))  # type: ignore[arg-type]
    return answer.told_to(operator=operator)


def test_a_2xx_is_taken_and_anything_else_is_not(receiver: WebhookReceiver) -> None:
    receiver.answers(200, 204, 400, 500)
    answers = [post(receiver.url) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 204, 400, 500]
    assert [answer.error for answer in answers[:2]] == [None, None]
    assert answers[3].error == "it answered HTTP 500"
    assert receiver.received[0].headers["content-type"] == "application/json"


def test_a_redirect_is_not_followed(receiver: WebhookReceiver) -> None:
    receiver.location = receiver.url
    receiver.answers(302)
    answer = post(receiver.url)
    assert answer.status == 302
    assert "not followed" in (answer.error or "")
    assert len(receiver.received) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]"])
def test_this_machine_is_not_reached_however_it_is_named(receiver: WebhookReceiver, host: str) -> None:
    for scheme in ("http", "https"):
        answer = post(f"{scheme}://{host}:{receiver.port}/hook", allowed=())
        assert answer.status is None
        assert "not on the public Internet" in (answer.error or "")
    assert receiver.received == []


def test_a_name_is_resolved_once_and_the_connection_goes_to_what_was_judged(receiver: WebhookReceiver) -> None:
    """A name that leads to a good address when it is looked at, and elsewhere a moment later, leads nowhere else."""
    answers = iter([["127.0.0.1"], ["127.0.0.9"]])

    async def resolve(host: str, port: int) -> Sequence[str]:
        assert (host, port) == ("hooks.example.org", receiver.port)
        return next(answers)

    answer = post(f"http://hooks.example.org:{receiver.port}/hook", resolve=resolve)
    assert answer == posting.Answer(200, None)
    assert receiver.received[0].headers["host"] == f"hooks.example.org:{receiver.port}"
    assert next(answers) == ["127.0.0.9"]


def test_of_a_names_addresses_only_the_good_ones_are_tried(receiver: WebhookReceiver) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["10.0.0.1", "::1", "127.0.0.1"]

    assert post(f"http://hooks.example.org:{receiver.port}/hook", resolve=resolve).status == 200


def test_plain_http_goes_to_allowed_networks_alone() -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["1.1.1.1"]

    answer = post("http://hooks.example.org/", resolve=resolve)
    assert "1.1.1.1, which is not" in (answer.error or "")


def test_the_certificate_is_checked_against_the_name_and_not_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "cert.pem"))
    posting._trust.cache_clear()
    with WebhookReceiver(tls=True) as secure:
        good = post(f"https://localhost:{secure.port}/hook", resolve=resolve)
        bad = post(f"https://other.example.org:{secure.port}/hook", resolve=resolve)
    posting._trust.cache_clear()
    assert good == posting.Answer(200, None)
    assert bad.status is None
    assert "certificate verify failed" in (bad.error or "")


def test_a_receiver_that_says_nothing_is_left_in_time(receiver: WebhookReceiver) -> None:
    receiver.released.clear()
    begun = time.monotonic()
    answer = post(receiver.url, timeout=0.3)
    receiver.released.set()
    assert answer == posting.Answer(None, "no answer within 0.3 s")
    assert time.monotonic() - begun < 15


def test_one_that_sends_its_answer_byte_by_byte_is_left_in_time() -> None:
    """Each byte alone would come in time for a bound on single reads."""
    stopped = threading.Event()

    def drip(listening: socket.socket) -> None:
        peer, _ = listening.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 200 OK\r\nx: ")
            while not stopped.wait(0.02):
                try:
                    peer.sendall(b"y")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        answer = post(f"http://127.0.0.1:{listening.getsockname()[1]}/", timeout=0.5)
        stopped.set()
        thread.join()
    assert answer == posting.Answer(None, "no answer within 0.5 s")


def test_a_closed_port_and_a_name_that_is_none_say_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert "ConnectError" in (post(f"http://127.0.0.1:{port}/").error or "")

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        raise socket.gaierror(-2, "Name or service not known")

    assert "cannot be resolved" in (post("https://nowhere.example.org/", resolve=resolve).error or "")


def resolving(*addresses: str) -> object:
    """A resolver that finds these; none: there is no such name."""

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        if not addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return addresses

    return resolve


def test_names_inside_and_names_that_are_none_sound_the_same_and_only_the_operator_hears_more() -> None:
    url = "https://db.internal/hook"
    found = [resolving("10.1.2.3"), resolving("127.0.0.1"), resolving("fd00::1"), resolving()]
    told = [post(url, allowed=(), resolve=each, operator=False) for each in found]
    assert len(set(told)) == 1
    assert (told[0].status, "10.1.2.3" in str(told[0])) == (None, False)
    details = [post(url, allowed=(), resolve=each).error or "" for each in found]
    assert "10.1.2.3" in details[0]
    assert "cannot be resolved" in details[3]


def test_ports_inside_sound_the_same_whatever_is_behind_them(receiver: WebhookReceiver) -> None:
    """A closed one, one that says nothing, one that speaks something else, one that wants TLS."""

    def greet(listening: socket.socket) -> None:
        peer, _ = listening.accept()
        with peer:
            peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            peer.recv(1000)

    receiver.released.clear()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        closed_port = closed.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as listening, WebhookReceiver(tls=True) as secure:
        greeting = threading.Thread(target=greet, args=(listening,))
        greeting.start()
        ports = [closed_port, listening.getsockname()[1], receiver.port, secure.port]
        urls = [f"http://127.0.0.1:{port}/" for port in ports] + [f"https://127.0.0.1:{closed_port}/"]
        told = [post(url, timeout=0.5, operator=False) for url in urls]
        greeting.join()
    receiver.released.set()
    assert {answer.error for answer in told} == {"no HTTP answer from 127.0.0.1"}
    assert "ConnectError" in (post(urls[0]).error or ""), "the operator reads what it was"


def test_names_that_nobody_answers_for_leave_other_orgs_their_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a name keeps a thread for as long as the system's own resolver waits, longer than a try."""
    answers = threading.Event()
    system = socket.getaddrinfo

    def hang(host: object, *rest: object, **more: object) -> object:
        if host == "hangs.example.org":
            assert answers.wait(30)
        return system("127.0.0.1", *rest, **more)  # type: ignore[arg-type, misc]

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    with WebhookReceiver() as receiver:
        try:
            url = f"http://hangs.example.org:{receiver.port}/"
            hung = [post(url, timeout=0.05, org="hostile").error for _ in range(posting.RESOLVERS_OF_ORG)]
            refused = post(url, timeout=20, org="hostile")
            taken = post(f"http://good.example.org:{receiver.port}/", org="honest")
        finally:
            answers.set()
    assert set(hung) == {"no answer within 0.05 s"}
    assert "lookups of names of this org are under way" in (refused.error or "")
    assert taken.status == 200


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://hooks.example.org/", "https"),
        ("ftp://hooks.example.org/", "https"),
        ("https://", "no host"),
        ("https://user:pass@hooks.example.org/", "password"),
        ("https://hooks.example.org/#x", "fragment"),
        ("https://10.0.0.1/", "no address that webhooks may be sent to"),
        ("https://[::ffff:169.254.169.254]/", "no address that webhooks may be sent to"),
        ("https://hooks.example.org/" + "x" * 3000, "characters"),
        ("https://hooks.example.org/\x00", "no URL"),
        ("https://hooks.example.org/\ud800", "no URL"),
        ("https://[::1", "no URL"),
        ("https://xn--a/", "no URL"),
        ("https://a b/", "no name"),
        ("https://a..b/", "no name"),
        (f"https://{'a' * 64}.org/", "no name"),
        ("https://hooks.example.org:99999/", "port"),
        ("https://hooks.example.org:0/", "port"),
    ],
)
def test_a_url_that_webhooks_cannot_be_sent_to_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        posting.check_url(url, ())


def test_plain_http_is_refused_with_the_setting_that_allows_it() -> None:
    with pytest.raises(ValueError, match="webhook_networks"):
        posting.check_url("http://127.0.0.1:9911/", ())


def test_a_good_url_is_kept_in_one_spelling() -> None:
    assert posting.check_url("HTTPS://Hooks.Example.org/ä?x=1", ()) == "https://hooks.example.org/%C3%A4?x=1"
    assert posting.check_url("http://127.0.0.1:9/", HERE) == "http://127.0.0.1:9/"
    assert posting.check_url("https://b\u00fccher.example.:8443/", ()) == "https://xn--bcher-kva.example.:8443/"
    assert posting.check_url("https://[2606:4700::1111]/", ()) == "https://[2606:4700::1111]/"
