"""A registry with Confluent's REST API, by Confluent's client.

Owns the URL, `https://user:password@host:8081?ca=ca.pem&certificate=me.pem&key=me.key`, of which all but the host may
be left out, and what an answer means. The client tries again by itself for a few seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from leasehold.backends import masked
from leasehold.errors import ConfigError, MissingDependency, RegistryError, RegistryUnavailable
from leasehold.registries.contract import AVRO, RegisteredSchema, Schemas

_OPTIONS = {"ca": "ssl.ca.location", "certificate": "ssl.certificate.location", "key": "ssl.key.location"}
_NOT_FOUND = 404
_SERVER = 500  # and above: of the server's own
_TRIES, _TIMEOUT = 2, 10.0  # of a request, in seconds


class ConfluentRegistry:
    """A registry. Raises `ConfigError` for a URL that cannot be read, `MissingDependency` without the client."""

    def __init__(self, url: str) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise MissingDependency("a schema registry", "registry") from error
        self._shown = masked(url)
        try:
            self._client = partial(SchemaRegistryClient, _settings(url))
            with self._client():
                pass
        except (ValueError, TypeError, OSError) as error:
            raise ConfigError("registry", self._shown, str(error), "Correct the URL") from None

    def schemas(self, numbers: Iterable[int]) -> Schemas:
        with self._client() as client:  # schemas are fetched once: nobody keeps a connection for the next ones
            return {number: self._schema(client, number) for number in numbers}

    def _schema(self, client: Any, number: int) -> RegisteredSchema | None:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            found = client.get_schema(number)
        except SchemaRegistryError as error:
            self._refuse(error)
            return None
        except Exception as error:  # of the client's HTTP library, which is not the same in all of its releases
            raise RegistryUnavailable(f"the schema registry {self._shown} does not answer: {error!r}") from error
        return RegisteredSchema(found.schema_type or AVRO, found.schema_str, bool(found.references))

    def _refuse(self, error: Any) -> None:
        """Raise what an answer means that has no schema, but where there is none."""
        status = error.http_status_code
        if status == _NOT_FOUND:
            return
        said = f"the schema registry {self._shown} gives no schema ({status}: {error.error_message})"
        if status >= _SERVER or status < 0:
            raise RegistryUnavailable(said)
        raise RegistryError(f"{said}. Check the URL, and the user, the password and their rights in it")


def _settings(url: str) -> dict[str, Any]:
    """What the client is configured by."""
    parts = urlsplit(url)
    settings: dict[str, Any] = {"timeout": _TIMEOUT, "max.retries": _TRIES}
    user, at, place = parts.netloc.rpartition("@")
    settings["url"] = urlunsplit((parts.scheme, place, parts.path, "", ""))
    if at:
        settings["basic.auth.user.info"] = unquote(user)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise ValueError(f"{name} is not an option of a registry; there are {', '.join(_OPTIONS)}")
        settings[_OPTIONS[name]] = value
    return settings
