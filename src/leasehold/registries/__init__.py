"""Registries of schemas: where the schema is kept by whose number a body says how it was written.

    http://, https://  `confluent`: Confluent's REST API, which Apicurio, Karapace and Redpanda have too
    azschemas://       `azure_schemas`: the Schema Registry of an Event Hubs namespace

A URL may hold a user and a password; nobody logs it but by `backends.masked`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.backends import masked
from leasehold.body_format import AZURE_SCHEMAS
from leasehold.errors import ConfigError
from leasehold.registries.contract import RegisteredSchema, SchemaRegistry, Schemas

if TYPE_CHECKING:
    from leasehold.registries.azure_schemas import AzureSchemas
    from leasehold.registries.confluent import ConfluentRegistry

__all__ = ["RegisteredSchema", "SchemaRegistry", "Schemas", "open_registry"]


def open_registry(url: str) -> ConfluentRegistry | AzureSchemas:
    """The registry of this URL. Nothing is asked of it yet. Raises `ConfigError`, `MissingDependency`."""
    if url.startswith(AZURE_SCHEMAS):
        from leasehold.registries.azure_schemas import AzureSchemas

        return AzureSchemas(url)
    if not url.startswith(("http://", "https://")):
        rule = f"a URL of http or https, or {AZURE_SCHEMAS}NAMESPACE.servicebus.windows.net"
        raise ConfigError("registry", masked(url), rule, "For example http://localhost:8081, as Kafka's clients")
    from leasehold.registries.confluent import ConfluentRegistry

    return ConfluentRegistry(url)
