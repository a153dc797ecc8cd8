"""Who may ask: each rule of `access`, met and broken."""

from __future__ import annotations

import pytest

from leasehold.dashboard.access import COOKIE, Access, Answer

HERE = {"host": "127.0.0.1:9465"}
TOKEN = "sixteen letters!"  # noqa: S105 -- of a test
ALLOWED, UNKNOWN, REFUSED = Answer.ALLOWED, Answer.UNKNOWN, Answer.REFUSED


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("GET", "/now", {}, ALLOWED),
        ("GET", "/now", {"host": "localhost:1"}, ALLOWED),
        ("GET", "/now", {"host": "[::1]:1"}, ALLOWED),
        ("GET", "/now", {"host": "evil.example:9465"}, REFUSED),
        ("GET", "/now", {"host": "127.0.0.1.evil.example"}, REFUSED),
        ("GET", "/now", {"host": ""}, REFUSED),
        ("GET", "/now", {"sec-fetch-site": "same-origin"}, ALLOWED),
        ("GET", "/now", {"sec-fetch-site": "none"}, ALLOWED),
        ("GET", "/now", {"sec-fetch-site": "cross-site"}, REFUSED),
        ("GET", "/now", {"sec-fetch-site": "same-site"}, REFUSED),
        ("GET", "/", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, ALLOWED),
        ("GET", "/now", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, REFUSED),
        ("GET", "/", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, REFUSED),
        ("POST", "/login", {}, REFUSED),
        ("POST", "/login", {"origin": "null"}, REFUSED),
        ("POST", "/login", {"origin": "http://evil.example"}, REFUSED),
        ("POST", "/login", {"origin": "http://127.0.0.1:9465"}, ALLOWED),
    ],
)
def test_without_a_token(method: str, path: str, headers: dict[str, str], expected: Answer) -> None:
    assert Access(loopback=True).judge(method, path, {**HERE, **headers}, {}) is expected


def test_with_a_token() -> None:
    access = Access(loopback=False, token=TOKEN)
    other = {"host": "dash.example:9465"}
    assert access.judge("GET", "/now", other, {}) is UNKNOWN
    assert access.judge("GET", "/login", other, {}) is ALLOWED
    assert access.judge("GET", "/page.css", other, {}) is ALLOWED
    assert access.judge("GET", "/page.js", other, {}) is UNKNOWN
    assert access.judge("GET", "/now", {**other, "authorization": f"Bearer {TOKEN}"}, {}) is ALLOWED
    assert access.judge("GET", "/now", {**other, "authorization": f"Basic {TOKEN}"}, {}) is UNKNOWN
    assert access.judge("GET", "/now", {**other, "authorization": "Bearer "}, {}) is UNKNOWN
    assert access.judge("GET", "/now", other, {COOKIE: access.session}) is ALLOWED
    assert access.judge("GET", "/now", other, {COOKIE: TOKEN}) is UNKNOWN
    assert access.judge("GET", "/now", other, {COOKIE: Access(loopback=False, token=TOKEN).session}) is UNKNOWN
    assert not access.is_token("")
    assert not Access(loopback=True).is_token("")
    assert TOKEN not in repr(access)
    assert access.session not in repr(access)
