"""A token of Microsoft Entra ID as the password of a Postgres role: `?auth=azure` in a URL.

Owns the option of the URL, which libpq does not know, and the credential. Promises that each connection asks for a
token of its own, so that one that ends is nobody's concern (azure-identity keeps a token until shortly before its end),
and that no token is kept here, shown or logged. Refuses a password beside it, and a way to a server that is not of this
host on which the token could go unencrypted: whoever has it is the role for an hour.

Any number of threads ask at once. A credential belongs to the process that made it; a forked child makes its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

from leasehold.azure.credentials import default_credential
from leasehold.backends import masked
from leasehold.errors import ConfigError, LeaseholdError, Verdict

SCOPE = "https://ossrdbms-aad.database.windows.net/.default"
"""What the token is for: Azure's databases of open source."""

_ENCRYPTED = ("require", "verify-ca", "verify-full")


class _Token(Protocol):
    @property
    def token(self) -> str: ...


class _Credential(Protocol):
    def get_token(self, *scopes: str) -> _Token: ...

    def close(self) -> None: ...


def without_auth(url: str) -> tuple[str, bool]:
    """The URL as libpq reads it, and whether it asks for a token. Raises `ConfigError` for another `auth`."""
    place, mark, query = url.partition("?")
    parts = query.split("&") if mark else []
    asked = [part.partition("=")[2] for part in parts if part.partition("=")[0] == "auth"]
    if not asked:
        return url, False
    if asked != ["azure"]:
        raise ConfigError("auth", None, "auth=azure, once, or no auth", f"Correct {masked(url)}")
    rest = "&".join(part for part in parts if part.partition("=")[0] != "auth")
    return f"{place}?{rest}" if rest else place, True


def check_way(shown: str, parameters: Mapping[str, object], *, away: bool) -> None:
    """Refuse a password beside the token, and a way `away` from this host that may be unencrypted: `ConfigError`."""
    if parameters.get("password"):
        raise ConfigError(
            "auth", "azure", f"the token is the password, and {shown} has another", "Leave one of them out"
        )
    if away and (parameters.get("sslmode") or os.environ.get("PGSSLMODE")) not in _ENCRYPTED:
        raise ConfigError(
            "auth",
            "azure",
            f"a token may go unencrypted to {shown}, where anybody on the way can take it",
            "Add sslmode=verify-full (and sslrootcert=system, or the file of the authority)",
        )


class AzureTokens:
    """Tokens for the connections of one store or sink."""

    def __init__(self, shown: str, unavailable: type[LeaseholdError]) -> None:
        self._shown, self._unavailable = shown, unavailable
        self._made: dict[int, _Credential] = {}
        self._credential()  # what is not installed is said at once

    def token(self) -> str:
        """A token that is good now. May take as long as the service does. Raises the error for an outage."""
        try:
            return self._credential().get_token(SCOPE).token
        except Exception as error:  # noqa: BLE001  whatever a credential raises, its text may hold what is secret
            # Nothing was found that could ask; all else may be an outage of the service.
            nothing = type(error).__name__ == "CredentialUnavailableError"
            raise self._unavailable(
                f"{self._shown}: azure-identity has given no token ({type(error).__name__}). Check the managed or "
                "workload identity, its environment variables, or `az login`; the role in the database has to be made "
                "for this identity",
                verdict=Verdict.MEND if nothing else None,
            ) from None

    def close(self) -> None:
        """Close this process's credential; another one is made when it is needed."""
        made = self._made.pop(os.getpid(), None)
        if made is not None:
            made.close()

    def _credential(self) -> _Credential:
        if (made := self._made.get(os.getpid())) is not None:
            return made
        credential: _Credential = default_credential("auth=azure in a Postgres URL")
        return self._made.setdefault(os.getpid(), credential)
