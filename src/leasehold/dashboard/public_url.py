"""The address at which browsers find a dashboard behind a reverse proxy: PURE.

Owns what of that address the dashboard has to know: the origin that its pages have there, and the path below which the
proxy shows it. A proxy may name either host in what it hands on, its own or the dashboard's, and may cut the path off
or leave it; all four are right. The page itself has relative links only, so it needs no address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from leasehold.errors import ConfigError

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[a-z0-9.-]+|\[[0-9a-f:.]+\]")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")


@dataclass(frozen=True, slots=True)
class PublicUrl:
    """Its parts. `origin` is as browsers write it, so without the port that is the scheme's own; `path` ends in `/`."""

    origin: str
    host: str
    path: str

    @classmethod
    def parse(cls, url: str, setting: str) -> PublicUrl:
        """Read `https://HOST[:PORT][/PATH]`. Raises `ConfigError` for anything else."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise _refused(setting, url, str(error)) from None
        scheme, host = parts.scheme, parts.netloc.rpartition(":")[0] if port is not None else parts.netloc
        host = host.lower()
        if "@" in host:
            raise _refused(setting, f"{scheme}://…@{host.rpartition('@')[2]}", "names a user or a password")
        if scheme not in _PORTS:
            raise _refused(setting, url, "does not begin with http:// or https://")
        if not _NAME.fullmatch(host):
            raise _refused(setting, url, "has no host that can be read (write a name in its ASCII form, xn--…)")
        if parts.query or parts.fragment or not _PATH.fullmatch(parts.path):
            raise _refused(setting, url, "has more than a scheme, a host, a port and a plain path")
        told = "" if port in (None, _PORTS[scheme]) else f":{port}"
        return cls(f"{scheme}://{host}{told}", host, f"{parts.path.rstrip('/')}/")

    def __str__(self) -> str:
        return f"{self.origin}{self.path}"

    @property
    def is_secure(self) -> bool:
        """Whether browsers come by TLS."""
        return self.origin.startswith("https:")

    def below(self, path: str) -> str:
        """The path of a request as the dashboard knows it: without the public path, where the proxy left that in."""
        return f"/{path.removeprefix(self.path)}" if path.startswith(self.path) else path


def _refused(setting: str, url: str, reason: str) -> ConfigError:
    return ConfigError(setting, url, reason, "Write the address that browsers use, like https://ops.example/leasehold/")
