"""Who may ask the dashboard for something: PURE.

Owns the rules of a request, before anything else looks at it:

1. Where the server listens on this machine alone, the request names this machine as its host: by an address of its
   own, as `localhost`, as the server was told to, or by its public name. So a page of somebody else whose name is made
   to lead to 127.0.0.1 (DNS rebinding) reads nothing.
2. What a page of another origin has asked for is refused, but for a person's following a link to the page itself.
3. Where there is a token, the request carries it (`Authorization: Bearer`) or the cookie of this run that it was
   exchanged for. Only the form that asks for it, and the style of that, come without. Browsers keep one cookie of a
   name for all ports of a host, so its name says the port, or the public address: two dashboards on a host do not log
   each other out.
4. What changes something, the exchange included, says where it comes from, and that is this server: by the host that
   the request names, or by its public address, since a proxy may name either.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from secrets import token_urlsafe

from leasehold.dashboard.public_url import PublicUrl

OPEN = frozenset({"/login", "/page.css"})
COOKIE = "leasehold_dashboard"
"""What the name of the cookie begins with."""

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


class AccessDecision(Enum):
    """What becomes of a request."""

    ALLOWED = 200
    UNKNOWN = 401
    REFUSED = 403


@dataclass(frozen=True, slots=True)
class PageAccess:
    """The rules of a server. `loopback`: only this machine reaches it. `token` is `""` where none is asked for.

    `session` is what a token is exchanged for, new in each run. `listens_as` is the host that it was told to listen at,
    `public` the address at which browsers find it behind a proxy, if there is one.
    """

    loopback: bool
    token: str = field(default="", repr=False)
    session: str = field(default_factory=lambda: token_urlsafe(24), repr=False)
    listens_as: str = ""
    public: PublicUrl | None = None

    def judge(self, method: str, path: str, headers: Mapping[str, str], cookies: Mapping[str, str]) -> AccessDecision:
        """What becomes of a request; `headers` by lower-case names."""
        host = headers.get("host", "")
        if self.loopback and not self._is_here(_name(host)):
            return AccessDecision.REFUSED
        follows = method == "GET" and path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and not follows:
            return AccessDecision.REFUSED
        origin = headers.get("origin", "")
        if method not in ("GET", "HEAD") and not self.is_public(origin) and not _is_from(origin, host):
            return AccessDecision.REFUSED
        if not self.token or path in OPEN:
            return AccessDecision.ALLOWED
        kind, _, told = headers.get("authorization", "").partition(" ")
        known = kind.lower() == "bearer" and self.is_token(told)
        return (
            AccessDecision.ALLOWED
            if known or _same(cookies.get(self.cookie(host), ""), self.session)
            else AccessDecision.UNKNOWN
        )

    def is_token(self, text: str) -> bool:
        """Whether this is the token."""
        return bool(self.token) and _same(text.strip(), self.token)

    def is_public(self, origin: str) -> bool:
        """Whether a page of that origin is the dashboard's own, seen through the proxy."""
        return self.public is not None and origin == self.public.origin

    def cookie(self, host: str) -> str:
        """The name of the cookie, for a request that names the server so."""
        if self.public is not None:
            return f"{COOKIE}_{re.sub('[^a-z0-9]+', '_', str(self.public).lower())}"
        port = host.rpartition("]")[2].rpartition(":")[2]
        return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE

    def _is_here(self, name: str) -> bool:
        if name in ("localhost", self.listens_as.lower(), self.public.host if self.public else ""):
            return bool(name)
        try:
            return ipaddress.ip_address(name.strip("[]")).is_loopback
        except ValueError:
            return False


def _same(text: str, right: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), right.encode("utf-8"))


def _name(host: str) -> str:
    """The host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


def _is_from(origin: str, host: str) -> bool:
    scheme, _, rest = origin.partition("://")
    return bool(host) and scheme in ("http", "https") and rest.lower() == host.lower()
