"""Who may ask: each rule of `access`, met and broken."""

from __future__ import annotations

import pytest

from leasehold.dashboard.access import COOKIE, AccessDecision, PageAccess
from leasehold.dashboard.public_url import PublicUrl
from leasehold.errors import ConfigError

HERE = {"host": "127.0.0.1:9465"}
TOKEN = "sixteen letters!"  # noqa: S105 -- of a test
ALLOWED, UNKNOWN, REFUSED = AccessDecision.ALLOWED, AccessDecision.UNKNOWN, AccessDecision.REFUSED


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
def test_without_a_token(method: str, path: str, headers: dict[str, str], expected: AccessDecision) -> None:
    assert PageAccess(loopback=True).judge(method, path, {**HERE, **headers}, {}) is expected


def test_the_host_that_the_server_was_told_to_listen_at_is_this_machine() -> None:
    access = PageAccess(loopback=True, listens_as="Desk.example")
    assert access.judge("GET", "/now", {"host": "desk.example:9465"}, {}) is ALLOWED
    assert access.judge("GET", "/now", {"host": "other.example:9465"}, {}) is REFUSED


def test_two_servers_on_a_host_have_cookies_of_their_own() -> None:
    first, second = (PageAccess(loopback=True, token=TOKEN) for _ in range(2))
    cookies = {"leasehold_dashboard_9465": first.session, "leasehold_dashboard_9466": second.session}
    assert first.judge("GET", "/now", {"host": "127.0.0.1:9465"}, cookies) is ALLOWED
    assert second.judge("GET", "/now", {"host": "[::1]:9466"}, cookies) is ALLOWED
    assert second.judge("GET", "/now", {"host": "[::1]:9465"}, cookies) is UNKNOWN
    assert first.cookie("dash.example") == first.cookie("[::1]") == COOKIE


def test_with_a_token() -> None:
    access = PageAccess(loopback=False, token=TOKEN)
    other = {"host": "dash.example:9465"}
    assert access.judge("GET", "/now", other, {}) is UNKNOWN
    assert access.judge("GET", "/login", other, {}) is ALLOWED
    assert access.judge("GET", "/page.css", other, {}) is ALLOWED
    assert access.judge("GET", "/page.js", other, {}) is UNKNOWN
    assert access.judge("GET", "/now", {**other, "authorization": f"Bearer {TOKEN}"}, {}) is ALLOWED
    assert access.judge("GET", "/now", {**other, "authorization": f"Basic {TOKEN}"}, {}) is UNKNOWN
    assert access.judge("GET", "/now", {**other, "authorization": "Bearer "}, {}) is UNKNOWN
    assert access.judge("GET", "/now", other, {access.cookie(other["host"]): access.session}) is ALLOWED
    assert access.judge("GET", "/now", other, {access.cookie(other["host"]): TOKEN}) is UNKNOWN
    assert (
        access.judge(
            "GET", "/now", other, {access.cookie(other["host"]): PageAccess(loopback=False, token=TOKEN).session}
        )
        is UNKNOWN
    )
    assert not access.is_token("")
    assert not PageAccess(loopback=True).is_token("")
    assert TOKEN not in repr(access)
    assert access.session not in repr(access)


def public(url: str) -> PublicUrl:
    return PublicUrl.parse(url, "--public-url")


@pytest.mark.parametrize("host", ["ops.example", "ops.example:8443", "127.0.0.1:9466"])
def test_a_proxy_may_name_either_host(host: str) -> None:
    access = PageAccess(loopback=True, token=TOKEN, public=public("https://ops.example:8443/leasehold"))
    assert access.judge("GET", "/login", {"host": host}, {}) is ALLOWED
    assert access.judge("GET", "/now", {"host": host}, {}) is UNKNOWN
    assert access.judge("GET", "/now", {"host": host}, {access.cookie(host): access.session}) is ALLOWED
    for origin, expected in {
        "https://ops.example:8443": ALLOWED,
        "http://ops.example": REFUSED if host != "ops.example" else ALLOWED,
        "https://evil.example": REFUSED,
        "null": REFUSED,
        "": REFUSED,
    }.items():
        assert access.judge("POST", "/login", {"host": host, "origin": origin}, {}) is expected, origin


def test_dashboards_below_one_public_host_have_cookies_of_their_own() -> None:
    urls = ("https://ops.example/a", "https://ops.example/b/", "https://ops.example", "http://ops.example/a")
    assert len({PageAccess(loopback=True, token=TOKEN, public=public(url)).cookie("127.0.0.1:1") for url in urls}) == 4


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("https://ops.example", "https://ops.example", "/"),
        ("https://OPS.example:443/a/b/", "https://ops.example", "/a/b/"),
        ("http://ops.example:80/a", "http://ops.example", "/a/"),
        ("http://10.0.0.7:8080/", "http://10.0.0.7:8080", "/"),
        ("https://[::1]:8443/a", "https://[::1]:8443", "/a/"),
        ("https://[::1]", "https://[::1]", "/"),
    ],
)
def test_a_public_url_is_read_as_browsers_name_it(url: str, origin: str, path: str) -> None:
    read = public(url)
    assert (read.origin, read.path, str(read)) == (origin, path, origin + path)


@pytest.mark.parametrize(
    "url",
    [
        *("", "ops.example", "ops.example/a", "ftp://ops.example/", "https://", "https:///a", "https://ops.example:x/"),
        *(
            "https://ops.example:70000",
            "https://me:secret@ops.example/",
            "https://ops.example/?a=b",
            "https://ops example/",
        ),
        *("https://ops.example/#a", "https://ops.example/a//b", "https://ops.example/a b", "https://\u00f6ps.example/"),
        *("https://[::1/", "https://ops.example/a;b", 'https://ops.example/"'),
    ],
)
def test_what_is_no_public_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"like https://ops\.example/leasehold/"):
        public(url)


def test_the_public_path_is_cut_off_once_where_a_proxy_has_left_it() -> None:
    read = public("https://ops.example/a/b")
    assert [read.below(path) for path in ("/a/b/", "/a/b/now", "/now", "/", "/a/bc", "/a/b/a/b/x")] == [
        *("/", "/now", "/now", "/", "/a/bc", "/a/b/x")
    ]
    assert public("https://ops.example").below("/now") == "/now"
