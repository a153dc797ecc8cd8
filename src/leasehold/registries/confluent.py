"""A registry with Confluent's REST API, by Confluent's client.

Owns the URL, `https://user:password@host:8081?ca=ca.pem&certificate=me.pem&key=me.key`, of which all but the host may
be left out, the options that may stand in the environment in place of its query, as `LEASEHOLD_REGISTRY_` and the name
in capitals, and what an answer means. The URL goes before the environment, which is read for each request of schemas:
a token or a password in a file that somebody else renews is read anew. The client tries again by itself for a few
seconds. Refused: a token on a way on which anybody could take it.

A registry that does not know a schema says so in a code of its own. Any other 404 comes from a server that has no
registry at this path: it rejects no event.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from leasehold.backends import masked, unknown_option
from leasehold.environment import secret_from
from leasehold.errors import ConfigError, MissingDependency, RegistryError, RegistryUnavailable
from leasehold.printable import printable, shortened
from leasehold.registries.contract import AVRO, PROTOBUF, RegisteredSchema, Schemas
from leasehold.registries.handshakes import CHECK, refused_handshake
from leasehold.registries.protobuf import registered_text

ENVIRONMENT = "LEASEHOLD_REGISTRY_"
"""What is put before an option's name in capitals: the variable that may have it."""

_OPTIONS = {
    "ca": "ssl.ca.location",
    "certificate": "ssl.certificate.location",
    "key": "ssl.key.location",
    "key_password": "ssl.key.password",
    "token": "bearer.auth.token",
    "logical_cluster": "bearer.auth.logical.cluster",
    "identity_pool": "bearer.auth.identity.pool.id",
}
_OF_TOKENS = ("logical_cluster", "identity_pool")
_LOGIN = ("user", "password")  # in the URL before the host
_SECRETS = ("key_password", "token")
_HERE = ("127.0.0.1", "localhost", "::1")
_NOT_FOUND = 404
_NOT_TAKEN = (409, 422)  # a schema that does not go with those of its subject, or is none
_NOT_KNOWN = range(40_400, 40_500)  # a registry's own codes: a subject, a version or a schema that it does not have
_PASSES = (408, 429)  # it is asked too slowly, or too often
_SERVER = 500  # and above: of the server's own
_LAST = 2**31 - 1
"""The last number that a schema can have: a registry may say of a higher one what it says of a wrong path."""
_SHOWN = 200
_MOST_FILES = 1_000  # that one schema refers to
_TRIES, _TIMEOUT = 2, 10.0  # of a request, in seconds


class ConfluentRegistry:
    """A registry. Raises `ConfigError` for a URL that cannot be read, `MissingDependency` without the client."""

    def __init__(self, url: str) -> None:
        self._url, self._shown = url, masked(url)
        self._numbers: dict[tuple[str, int], int] = {}  # of versions, each of which has one for ever
        with self._client():
            pass

    def schemas(self, numbers: Iterable[int]) -> Schemas:
        with self._client() as client:  # schemas are fetched once: nobody keeps a connection for the next ones
            return {number: self._schema(client, number) if number <= _LAST else None for number in numbers}

    def numbers(self, subject: str) -> set[int]:
        """The numbers of the schemas that the versions of a subject have; each version is asked for once.

        None where there is no such subject. Raises `RegistryUnavailable`, `RegistryError`.
        """
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        with self._client() as client, self._asked(f"gives no versions of {subject}"):
            try:
                versions = [(subject, version) for version in client.get_versions(subject)]
            except SchemaRegistryError as error:
                if _is_not_known(error):
                    return set()
                raise
            for name, version in versions:
                if (name, version) not in self._numbers:
                    self._numbers[name, version] = client.get_version(name, version).schema_id
        return {self._numbers[version] for version in versions}

    def register(self, subject: str, text: str, kind: str = AVRO) -> int:
        """The number of the schema of this text and kind, which the subject has from then on.

        Raises `ConfigError` for a schema of Protobuf that imports others of yours, `RegistryUnavailable`, and
        `RegistryError` also where the subject does not take it.
        """
        from confluent_kafka.schema_registry import Schema

        text = registered_text(text) if kind == PROTOBUF else text
        with self._client() as client, self._asked(f"does not take this schema for {subject}"):
            return int(client.register_schema(subject, Schema(text, kind)))

    def _client(self) -> Any:
        """A client with what the environment says now. Raises `ConfigError`, `MissingDependency`."""
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise MissingDependency("a schema registry", "registry") from error
        try:
            return SchemaRegistryClient(_settings(self._url, os.environ))
        except (ValueError, TypeError, OSError) as error:
            raise ConfigError("registry", self._shown, str(error), "Correct the URL or its environment") from None

    def _schema(self, client: Any, number: int) -> RegisteredSchema | None:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        with self._asked("gives no schema"):
            try:
                found = client.get_schema(number)
                files = tuple(_files(client, found.references or [], set()))
            except SchemaRegistryError as error:
                if _is_not_known(error):
                    return None
                raise
        return RegisteredSchema(found.schema_type or AVRO, found.schema_str, files)

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """Raise what it means that the registry does not do what it is asked; `what` says so."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            yield
        except SchemaRegistryError as error:
            raise self._refusal(error, what) from error
        except Exception as error:  # of the client's HTTP library, which is not the same in all of its releases
            if wrong := refused_handshake(error):
                raise RegistryError(f"the schema registry {self._shown} is not asked ({wrong}). {CHECK}") from error
            raise RegistryUnavailable(f"the schema registry {self._shown} does not answer: {error!r}") from error

    def _refusal(self, error: Any, what: str) -> RegistryError:
        status = error.http_status_code
        why = printable(shortened(str(error.error_message), _SHOWN))
        said = f"the schema registry {self._shown} {what} ({status}: {why})"
        if status >= _SERVER or status < 0 or status in _PASSES:
            return RegistryUnavailable(said)
        if status == _NOT_FOUND:
            return RegistryError(f"{said}. Check the path of the URL: Apicurio has this API at /apis/ccompat/v7")
        if status in _NOT_TAKEN:
            return RegistryError(f"{said}. Give one that goes with those that the subject has")
        return RegistryError(f"{said}. Check the URL, and the user and password, or the token, and their rights")


def _is_not_known(error: Any) -> bool:
    """Whether a registry says that it has not what it was asked for."""
    return error.http_status_code == _NOT_FOUND and error.error_code in _NOT_KNOWN


def _files(client: Any, references: Iterable[Any], entered: set[str]) -> Iterator[tuple[str, str]]:
    """The schemas that are referred to, each behind those that it refers to itself."""
    for one in references:
        if one.name not in entered and len(entered) < _MOST_FILES:
            entered.add(one.name)
            found = client.get_version(one.subject, one.version).schema
            yield from _files(client, found.references or [], entered)
            yield one.name, found.schema_str


def _settings(url: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """What the client is configured by. Raises `ValueError`, `ConfigError`."""
    parts = urlsplit(url)
    login, _, place = parts.netloc.rpartition("@")
    options = dict(zip(_LOGIN, map(unquote, login.split(":", 1)), strict=False)) if login else {}
    options |= _of_query(parts.query)
    for name in (*_LOGIN, *_OPTIONS):
        value = secret_from(environment, ENVIRONMENT + name.upper())
        if value:
            options.setdefault(name, value)
    settings: dict[str, Any] = {"timeout": _TIMEOUT, "max.retries": _TRIES}
    settings["url"] = urlunsplit((parts.scheme, place, parts.path, "", ""))
    user, password = (options.pop(name, None) for name in _LOGIN)
    if user is not None:
        settings["basic.auth.user.info"] = f"{user}:{password or ''}"
    if "token" not in options:
        options = {name: value for name, value in options.items() if name not in _OF_TOKENS}
    elif user is not None:
        raise ValueError("a user and a token are both given: keep one")
    elif parts.scheme == "http" and parts.hostname not in _HERE:
        raise ValueError("the token would go over plain http, where anybody on the way can take it: use https")
    else:
        settings["bearer.auth.credentials.source"] = "STATIC_TOKEN"
        options.setdefault("logical_cluster", "")  # of Confluent's cloud, and the client asks for it
    return settings | {_OPTIONS[name]: value for name, value in options.items()}


def _of_query(query: str) -> dict[str, str]:
    """The options of a query, in which a `+` stands for itself. Raises `ValueError`."""
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name not in _OPTIONS:
            shown = unknown_option(name, options, _SECRETS)
            raise ValueError(f"{shown} is not an option of a registry; there are {', '.join(_OPTIONS)}")
        options[name] = unquote(value)
    return options
