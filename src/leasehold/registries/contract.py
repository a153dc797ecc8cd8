"""What a registry of schemas is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
"""What `RegisteredSchema.kind` may be."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as its registry has it: its kind, and its text. `references` says that it needs others beside it."""

    kind: str
    text: str
    references: bool = False


Schemas = Mapping[int, RegisteredSchema | None]
"""Schemas by number; None where the registry has none."""


class SchemaRegistry(Protocol):
    """A registry of schemas."""

    def schemas(self, numbers: Iterable[int]) -> Schemas:
        """The schemas of these numbers, over one connection. Raises `RegistryUnavailable`, `RegistryError`."""
        ...
