"""What a registry of schemas is."""

from __future__ import annotations

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


class SchemaRegistry(Protocol):
    """A registry of schemas."""

    def schema(self, number: int) -> RegisteredSchema | None:
        """The schema of this number; None where there is none. Raises `RegistryUnavailable`, `RegistryError`."""
        ...
