"""Who may ask the dashboard for something: PURE.

Owns the rules of a request, before anything else looks at it:

1. Where the server listens on this machine alone, the request names this machine as its host. So a page of somebody
   else whose name is made to lead to 127.0.0.1 (DNS rebinding) reads nothing.
2. What a page of another origin has asked for is refused, but for a person's following a link to the page itself.
3. Where there is a token, the request carries it (`Authorization: Bearer`) or the cookie of this run that it was
   exchanged for. Only the form that asks for it, and the style of that, come without.
4. What changes something, the exchange included, says where it comes from, and that is this server.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from secrets import token_urlsafe

OPEN = frozenset({"/login", "/page.css"})
COOKIE = "leasehold_dashboard"
_HERE = frozenset({"127.0.0.1", "localhost", "[::1]"})

HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with none at all a browser hides where a form comes from, and rule 4 asks
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""What goes with every answer. The policy lets the page load from this server and run nothing that stands in markup."""


class Answer(Enum):
    """What becomes of a request."""

    ALLOWED = 200
    UNKNOWN = 401
    REFUSED = 403


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of a server. `loopback`: only this machine reaches it. `token` is `""` where none is asked for.

    `session` is what a token is exchanged for, new in each run.
    """

    loopback: bool
    token: str = field(default="", repr=False)
    session: str = field(default_factory=lambda: token_urlsafe(24), repr=False)

    def judge(self, method: str, path: str, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Answer:
        """What becomes of a request; `headers` by lower-case names."""
        host = headers.get("host", "")
        if self.loopback and _name(host) not in _HERE:
            return Answer.REFUSED
        follows = method == "GET" and path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and not follows:
            return Answer.REFUSED
        if method not in ("GET", "HEAD") and not _is_from(headers.get("origin", ""), host):
            return Answer.REFUSED
        if not self.token or path in OPEN:
            return Answer.ALLOWED
        kind, _, told = headers.get("authorization", "").partition(" ")
        known = kind.lower() == "bearer" and self.is_token(told)
        return Answer.ALLOWED if known or _same(cookies.get(COOKIE, ""), self.session) else Answer.UNKNOWN

    def is_token(self, told: str) -> bool:
        """Whether this is the token."""
        return bool(self.token) and _same(told.strip(), self.token)


def _same(told: str, right: str) -> bool:
    return hmac.compare_digest(told.encode("utf-8", "replace"), right.encode("utf-8"))


def _name(host: str) -> str:
    """The host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


def _is_from(origin: str, host: str) -> bool:
    scheme, _, rest = origin.partition("://")
    return bool(host) and scheme in ("http", "https") and rest.lower() == host.lower()
