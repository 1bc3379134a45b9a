"""The page for people as it is sent: open to everybody, told to be careful, asked for again only when it changed."""

import httpx

from app.dashboard.assets import all_assets
from tests.served import Served

TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def paths() -> list[str]:
    return ["/", *(f"/page/{name}" for name in all_assets())]


def test_the_page_and_all_its_files_are_sent_to_who_has_no_key(served_on_sqlite: Served) -> None:
    with served_on_sqlite.http(None) as http:
        for path in paths():
            answer = http.get(path)
            assert answer.status_code == 200, path
            kind = "html" if path == "/" else path.rpartition(".")[2]
            assert answer.headers["content-type"].partition(";")[0] == TYPES[kind]
            head = http.head(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == str(len(answer.content))
    assert len(paths()) > 10


def test_every_answer_allows_our_own_files_and_nothing_else(served_on_sqlite: Served) -> None:
    with served_on_sqlite.http(None) as http:
        for path in paths():
            headers = http.get(path).headers
            policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
            assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            assert policy["require-trusted-types-for"] == "'script'"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert "set-cookie" not in headers


def test_a_file_that_did_not_change_is_not_sent_again(served_on_sqlite: Served) -> None:
    with served_on_sqlite.http(None) as http:
        for path in paths():
            first = http.get(path)
            assert first.headers["cache-control"] == "no-cache"
            for tag in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
                again = http.get(path, headers={"if-none-match": tag})
                assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
                assert "content-security-policy" in again.headers
            assert http.get(path, headers={"if-none-match": '"other"'}).status_code == 200


def test_what_is_no_file_of_the_page_is_not_found(served_on_sqlite: Served) -> None:
    names = ("none.js", "assets.py", "__init__.py", "..%2fassets.py", "%2e%2e/assets.py", ".", "a%00")
    with served_on_sqlite.http(None) as http:
        for name in names:
            answer = http.send(httpx.Request("GET", f"{served_on_sqlite.url}/page/{name}"))
            assert answer.status_code == 404, name
            assert answer.json()["error"]["type"] == "invalid_request_error"


def test_the_page_takes_no_other_method(served_on_sqlite: Served) -> None:
    with served_on_sqlite.http(None) as http:
        assert http.post("/").status_code == 405
        assert http.put("/page/main.js").status_code == 405
