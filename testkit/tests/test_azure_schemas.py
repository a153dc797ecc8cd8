"""Azure's Schema Registry of the kit, by Azure's own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("azure.schemaregistry")

from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.identity import DefaultAzureCredential
from azure.schemaregistry import SchemaFormat, SchemaRegistryClient
from tests.azure_registry import AzureRegistry, azure_registry


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureRegistry]:
    with azure_registry(tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture
def client(registry: AzureRegistry) -> Iterator[SchemaRegistryClient]:
    namespace, verify = registry.server.namespace, str(registry.authority)
    with (
        DefaultAzureCredential() as credential,
        SchemaRegistryClient(namespace, credential, connection_verify=verify, retry_total=0) as client,
    ):
        yield client


def test_schemas_are_registered_and_found_by_id_version_and_text(client: SchemaRegistryClient) -> None:
    first = client.register_schema("g", "Flight", '"int"', "Avro")
    assert (first.group_name, first.name, first.version, len(first.id)) == ("g", "Flight", 1, 32)
    assert client.register_schema("g", "Flight", '"int"', "Avro").id == first.id
    second = client.register_schema("g", "Flight", "message F {}", SchemaFormat.CUSTOM)
    assert (second.version, second.id == first.id) == (2, False)
    assert client.register_schema("other", "Flight", '"int"', "Avro").version == 1
    found = client.get_schema(first.id.upper())
    assert (found.definition, found.properties.format, found.properties.version) == ('"int"', SchemaFormat.AVRO, 1)
    found = client.get_schema(group_name="g", name="Flight", version=2)
    assert (found.definition, found.properties.format) == ("message F {}", SchemaFormat.CUSTOM)
    assert client.get_schema_properties("g", "Flight", '"int"', "Avro").id == first.id


def test_what_is_not_there_and_who_is_not_let_in(registry: AzureRegistry, client: SchemaRegistryClient) -> None:
    """In the words of the service."""
    with pytest.raises(ResourceNotFoundError) as missing:
        client.get_schema("a" * 32)
    assert missing.value.error is not None
    assert missing.value.error.code == "ItemNotFound"
    with pytest.raises(ResourceNotFoundError):
        client.get_schema_properties("g", "Flight", '"int"', "Avro")
    with pytest.raises(ResourceNotFoundError):
        client.get_schema(group_name="g", name="Flight", version=1)
    with pytest.raises(HttpResponseError) as bad:
        client.get_schema("a")
    assert (bad.value.status_code, bad.value.error and bad.value.error.code) == (400, "InvalidRequest")
    registry.server._token = "another"  # noqa: S105
    with pytest.raises(ClientAuthenticationError):
        client.get_schema("a" * 32)
