"""Registries of schemas: where the schema is kept by whose number a body says how it was written.

    http://, https://  `confluent`: Confluent's REST API, which Apicurio, Karapace and Redpanda have too

A URL may hold a user and a password; nobody logs it but by `backends.masked`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.backends import masked
from leasehold.errors import ConfigError
from leasehold.registries.contract import RegisteredSchema, SchemaRegistry, Schemas

if TYPE_CHECKING:
    from leasehold.registries.confluent import ConfluentRegistry

__all__ = ["RegisteredSchema", "SchemaRegistry", "Schemas", "open_registry"]


def open_registry(url: str) -> ConfluentRegistry:
    """The registry of this URL. Nothing is asked of it yet. Raises `ConfigError`, `MissingDependency`."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(
            "registry", masked(url), "a URL of http or https", "For example http://localhost:8081, as Kafka's clients"
        )
    from leasehold.registries.confluent import ConfluentRegistry

    return ConfluentRegistry(url)
