"""Who may ask: each rule of `access`, met and broken."""

from __future__ import annotations

import pytest

from leasehold.dashboard.access import COOKIE, Access, Answer, cookie_of

HERE = {"host": "127.0.0.1:9465"}
TOKEN = "sixteen letters!"  # noqa: S105 -- of a test
ALLOWED, UNKNOWN, REFUSED = Answer.ALLOWED, Answer.UNKNOWN, Answer.REFUSED


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("GET", "/now", {}, ALLOWED),
        ("GET", "/now", {"host": "localhost:1"}, ALLOWED),
        ("GET", "/now", {"host": "[::1]:1"}, ALLOWED),
        ("GET", "/now", {"host": "127.0.0.2:1"}, ALLOWED),
        ("GET", "/now", {"host": "128.0.0.1:1"}, REFUSED),
        ("GET", "/now", {"host": "[::2]:1"}, REFUSED),
        ("GET", "/now", {"host": "desk.example:1"}, REFUSED),
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


def test_the_host_that_the_server_was_told_to_listen_at_is_this_machine() -> None:
    access = Access(loopback=True, listens_as="Desk.example")
    assert access.judge("GET", "/now", {"host": "desk.example:9465"}, {}) is ALLOWED
    assert access.judge("GET", "/now", {"host": "other.example:9465"}, {}) is REFUSED


def test_two_servers_on_a_host_have_cookies_of_their_own() -> None:
    first, second = (Access(loopback=True, token=TOKEN) for _ in range(2))
    cookies = {"leasehold_dashboard_9465": first.session, "leasehold_dashboard_9466": second.session}
    assert first.judge("GET", "/now", {"host": "127.0.0.1:9465"}, cookies) is ALLOWED
    assert second.judge("GET", "/now", {"host": "[::1]:9466"}, cookies) is ALLOWED
    assert second.judge("GET", "/now", {"host": "[::1]:9465"}, cookies) is UNKNOWN
    assert cookie_of("dash.example") == cookie_of("[::1]") == COOKIE


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
    assert access.judge("GET", "/now", other, {cookie_of(other["host"]): access.session}) is ALLOWED
    assert access.judge("GET", "/now", other, {cookie_of(other["host"]): TOKEN}) is UNKNOWN
    assert (
        access.judge("GET", "/now", other, {cookie_of(other["host"]): Access(loopback=False, token=TOKEN).session})
        is UNKNOWN
    )
    assert not access.is_token("")
    assert not Access(loopback=True).is_token("")
    assert TOKEN not in repr(access)
    assert access.session not in repr(access)
