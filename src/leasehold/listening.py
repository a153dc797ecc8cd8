"""An address to listen at, as people write it: `127.0.0.1:9464`, `[::1]:9464`, `localhost:0`.

Owns its form, and who may reach it. A server of Leasehold binds to this machine alone unless told otherwise, and says
so where it is told otherwise.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass

from leasehold.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Address:
    """A host, by name or number, and a port; port 0 takes a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, field: str = "listen") -> Address:
        """Read `HOST:PORT`; an IPv6 host in brackets. Raises `ConfigError` that names `field`."""
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([\w.-]+)):(\d{1,5})", text.strip())
        if match is None or int(match[3]) > 65_535:
            raise ConfigError(
                field, text, "HOST:PORT, with an IPv6 address in brackets", 'For example "127.0.0.1:9464"'
            )
        return cls(match[1] or match[2], int(match[3]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches a server that listens here."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens at `host`. Of a name that nobody knows: no."""
    try:
        found = {address[4][0] for address in socket.getaddrinfo(host or None, None, flags=socket.AI_PASSIVE)}
    except OSError:
        return False  # the server will say why
    return all(ipaddress.ip_address(str(one).partition("%")[0]).is_loopback for one in found)
