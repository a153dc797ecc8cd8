"""What a registry of schemas is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
"""What `RegisteredSchema.kind` may be."""


Files = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as its registry has it: its kind, and its text.

    `files` are the texts of those that it refers to, by the names that it calls them, each behind those that it needs
    itself. `wrong` says why nobody can read it, where that was found out when it was fetched.
    """

    kind: str
    text: str
    files: Files = ()
    wrong: str = ""


Schemas = Mapping[int, RegisteredSchema | None]
"""Schemas by number; None where the registry has none."""


class SchemaRegistry(Protocol):
    """A registry of schemas, for who reads bodies."""

    def schemas(self, numbers: Iterable[int]) -> Schemas:
        """The schemas of these numbers, over one connection. Raises `RegistryUnavailable`, `RegistryError`."""
        ...

    def numbers(self, subject: str) -> Collection[int]:
        """The numbers of the schemas that the versions of a subject have, of all that the registry lists.

        None where it has no such subject. Raises `RegistryUnavailable`, `RegistryError`.
        """
        ...
