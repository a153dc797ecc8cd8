"""URLs of servers with a user and password in them: refused before a driver reads them wrongly and repeats them.

A `/`, `@`, `?` or `#` of a password that is not percent-encoded makes its parts look like a host, a port or a database,
which drivers name in their messages.
"""

from __future__ import annotations

import re

from leasehold.backends import masked
from leasehold.errors import ConfigError


def check_server_url(url: str, form: str) -> None:
    """Refuse a URL that cannot be read as `form`, which is shown. Raises `ConfigError`."""
    if "#" in url:
        raise bad_url(url, form)
    authority, _, path = url.partition("://")[2].partition("?")[0].partition("/")
    hosts = authority.rpartition("@")[2]
    ports = [re.sub(r"^\[[^]]*\]", "", host).rpartition(":")[2] for host in hosts.split(",") if ":" in host]
    if "@" in path or authority.count("@") > 1 or not all(re.fullmatch(r"\d*|[^]]*\]", port) for port in ports):
        raise bad_url(url, form)


def bad_url(url: str, form: str) -> ConfigError:
    """The error for a URL that cannot be read, without what is secret in it."""
    return ConfigError(
        "store",
        masked(url),
        form,
        "Percent-encode what is not a letter or digit in the user, the password and query values (# is %23, & is %26)",
    )
