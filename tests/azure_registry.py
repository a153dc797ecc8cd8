"""Azure's Schema Registry of a test's own, behind TLS, with a managed identity that gives tokens for it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from azure.identity import DefaultAzureCredential
from azure.schemaregistry import SchemaRegistryClient
from azure.schemaregistry.encoder.avroencoder import AvroEncoder

from leasehold_testkit.emulators.azure_schemas import AzureSchemasServer, IdentityServer
from tests.certificates import Authority

TOKEN = "given-to-the-identity-of-the-test"  # noqa: S105


@dataclass(frozen=True)
class AzureRegistry:
    """A registry, who gives tokens for it, and the authority that has signed its certificate."""

    server: AzureSchemasServer
    identity: IdentityServer
    authority: Path

    @property
    def url(self) -> str:
        """As a pipeline file names it."""
        return f"azschemas://{self.server.namespace}?ca={quote(str(self.authority))}"

    @contextmanager
    def encoder(self) -> Iterator[Any]:
        """Azure's own encoder, which registers schemas in the group `flights`."""
        with (
            DefaultAzureCredential() as credential,
            SchemaRegistryClient(self.server.namespace, credential, connection_verify=str(self.authority)) as client,
        ):
            yield AvroEncoder(client=client, group_name="flights", auto_register=True)

    @property
    def asked(self) -> list[str]:
        """The ids that schemas were asked for by, in order."""
        paths = [path.partition("?")[0] for path in self.server.requests]
        return [path.rpartition("/")[2] for path in paths if path.startswith("/$schemaGroups/$schemas/")]


def server_context(authority: Authority, *, trusts: Path | None = None) -> ssl.SSLContext:
    """TLS of a server of this machine, which wants certificates of those whom it `trusts`, if it does any."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign("server").both)
    if trusts is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(trusts)
    return context


@contextmanager
def azure_registry(folder: Path, monkeypatch: pytest.MonkeyPatch, port: int = 0) -> Iterator[AzureRegistry]:
    """A registry whose certificate is signed by an authority in this folder, for the identity of this process."""
    authority = Authority(folder / "registry")
    with (
        closing(IdentityServer(TOKEN)) as identity,
        closing(AzureSchemasServer(server_context(authority), port, token=TOKEN)) as server,
    ):
        for name, value in identity.environment.items():
            monkeypatch.setenv(name, value)
        yield AzureRegistry(server, identity, authority.file)
