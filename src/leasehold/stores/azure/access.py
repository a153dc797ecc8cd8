"""From a URL and the environment to an Azure Storage endpoint and a credential for it.

    azblob://ACCOUNT/CONTAINER       aztable://ACCOUNT/TABLE

Owns which credential is taken. The first that is there, in this order:

1. a SAS in the URL: `azblob://account/container?sv=…&sig=…`, as the portal shows it
2. `connection_string=…` in the URL, percent-encoded
3. the environment's AZURE_STORAGE_CONNECTION_STRING
4. the environment's AZURE_STORAGE_SAS_TOKEN
5. azure-identity's default credential: a managed identity, a workload identity, `az login` …

In place of a variable, one with `_FILE` behind its name may name a file. `credential=default` in the URL goes
straight to the last, whatever the environment says. `endpoint=URL` says where the account is, for Azurite or another
cloud; else the connection string does, else `https://ACCOUNT.blob.core.windows.net` (`table` for tables).

`names=as-spelled` in an `azblob` URL is for a container that is shared with processors in Go and Rust, which write the
names of blobs as they are spelled.

Refuses what cannot work or would give a secret away: two credentials in one URL, a connection string of another
account, a SAS or a token over plain http to another host. No secret is in a message or a repr.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential, TokenCredential

from leasehold.azure.credentials import default_credential
from leasehold.backends import masked, unknown_option
from leasehold.environment import secret_from
from leasehold.errors import ConfigError

Credential = AzureNamedKeyCredential | AzureSasCredential | TokenCredential

_OPTIONS = ("endpoint", "connection_string", "credential", "names")
AS_SPELLED = "as-spelled"
_NAMES = ("lower", AS_SPELLED)
_STRING, _SAS = "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"
_HERE = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """Where a store is and how to get in. `where` is the store's URL without anything secret.

    `as_spelled`: names of blobs keep their case, as Go's and Rust's processors write them.
    """

    where: str
    endpoint: str
    place: str
    credential: Credential = field(repr=False)
    as_spelled: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """One of the storage services: its scheme, its name in endpoints, and what it calls its places."""

    scheme: str
    name: str
    place: str
    place_rule: str
    place_pattern: str


BLOB = Service(
    "azblob",
    "blob",
    "CONTAINER",
    "3 to 63 lower-case letters, digits and single hyphens",
    r"[a-z0-9](?:-?[a-z0-9]){2,62}",
)
TABLE = Service(
    "aztable", "table", "TABLE", "3 to 63 letters and digits, the first a letter", r"[A-Za-z][A-Za-z0-9]{2,62}"
)


def read_url(url: str, service: Service, environment: Mapping[str, str] | None = None) -> StoreAccess:
    """The access that a store's URL stands for. Raises `ConfigError`."""
    environment = os.environ if environment is None else environment
    account, place = _names(url, service)
    options, sas = _options(url)
    names = options.get("names", "lower")
    if names not in _NAMES or ("names" in options and service is not BLOB):
        rule = f"names is one of {', '.join(_NAMES)}, and of azblob:// alone: a table keeps case"
        raise ConfigError("store", masked(url), rule, "Correct it or leave it out")
    where = f"{service.scheme}://{account}/{place}{f'?names={names}' if names == AS_SPELLED else ''}"
    stated = [name for name, there in (("a SAS", sas), ("connection_string", "connection_string" in options)) if there]
    chosen = options.get("credential", "")
    if chosen not in ("", "default"):  # it may be a secret, so it is not said
        rule = "credential=default is all that this option may be"
        raise ConfigError("store", masked(url), rule, f"Leave it out, and set {_STRING} or {_SAS}")
    if chosen:
        stated.append("credential=default")
    if len(stated) > 1:
        raise ConfigError(
            "store",
            masked(url),
            f"one credential, and this URL names {' and '.join(stated)}",
            "Keep one of: a SAS (?sv=…&sig=…), connection_string=…, credential=default, or none, and set "
            f"{_STRING} or {_SAS}",
        )
    text = options.get("connection_string") or ("" if sas or chosen else secret_from(environment, _STRING) or "")
    string = _connection_string(text, account, "connection_string" in options, url) if text else {}
    endpoint = options.get("endpoint") or _endpoint_of(string, account, service)
    if not sas and not chosen and not text:
        sas = (secret_from(environment, _SAS) or "").removeprefix("?")
    credential = _credential(string, sas)
    _check_endpoint(endpoint, credential, url)
    return StoreAccess(where, endpoint, place, credential, as_spelled=names == AS_SPELLED)


def _names(url: str, service: Service) -> tuple[str, str]:
    parts = urlsplit(url)
    account, place = parts.netloc, parts.path.removeprefix("/")
    if not re.fullmatch(r"[a-z0-9]{3,24}", account) or not re.fullmatch(service.place_pattern, place) or parts.fragment:
        form = f"{service.scheme}://ACCOUNT/{service.place}"
        raise ConfigError(
            "store",
            masked(url),
            f"a URL of this kind is {form}, with an account of 3 to 24 lower-case letters and digits and a "
            f"{service.place.lower()} of {service.place_rule}",
            "Give the account's name alone; an endpoint that is not Azure's own is endpoint=https://…",
        )
    return account, place


def _options(url: str) -> tuple[dict[str, str], str]:
    """The options of ours in a URL's query, and the rest, which is a SAS."""
    options: dict[str, str] = {}
    rest = []
    for pair in filter(None, urlsplit(url).query.split("&")):
        name, _, value = pair.partition("=")
        if name in _OPTIONS:
            options[name] = unquote(value)
        else:
            rest.append(pair)
    if rest and not any(pair.startswith("sig=") for pair in rest):
        unknown = ", ".join(pair.partition("=")[0] for pair in rest)
        unknown = unknown_option(unknown, options, ("connection_string",))
        raise ConfigError(
            "store", masked(url), f"unknown option {unknown}", f"There are {', '.join(_OPTIONS)}, and a SAS"
        )
    return options, "&".join(rest)


def _connection_string(text: str, account: str, in_url: bool, url: str) -> dict[str, str]:
    source = "connection_string in the store's URL" if in_url else _STRING
    pairs = dict(pair.split("=", 1) for pair in text.strip().strip(";").split(";") if "=" in pair)
    if not ("AccountKey" in pairs and "AccountName" in pairs) and "SharedAccessSignature" not in pairs:
        raise ConfigError(
            source,
            None,
            "a connection string has AccountName and AccountKey, or a SharedAccessSignature",
            "Copy it anew",
        )
    if pairs.get("AccountName", account) != account:
        raise ConfigError(
            source,
            None,
            f"is of the account {pairs['AccountName']}, and the store is {masked(url)}",
            f"Correct one of them, or add credential=default to the URL to leave {_STRING} alone",
        )
    return pairs


def _endpoint_of(string: Mapping[str, str], account: str, service: Service) -> str:
    stated = string.get(f"{service.name.capitalize()}Endpoint")
    suffix = string.get("EndpointSuffix", "core.windows.net")
    return stated or f"{string.get('DefaultEndpointsProtocol', 'https')}://{account}.{service.name}.{suffix}"


def _credential(string: Mapping[str, str], sas: str) -> Credential:
    sas = sas or string.get("SharedAccessSignature", "").removeprefix("?")
    if "AccountKey" in string:
        return AzureNamedKeyCredential(string["AccountName"], string["AccountKey"])
    if sas:
        return AzureSasCredential(sas)
    found: TokenCredential = default_credential("azure-identity's default credential")
    return found


def _check_endpoint(endpoint: str, credential: Credential, url: str) -> None:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.username:
        raise ConfigError("store", masked(url), "endpoint is an http or https URL without a query", "Correct endpoint=")
    if parts.scheme == "https" or isinstance(credential, AzureNamedKeyCredential):
        return
    is_sas = isinstance(credential, AzureSasCredential)
    if not (is_sas and parts.hostname in _HERE):
        raise ConfigError(
            "store",
            masked(url),
            f"{'a SAS' if is_sas else 'a token'} would go over plain http, where anybody on the way can take it",
            "Use https, or a connection string with an account key, which is never sent",
        )
