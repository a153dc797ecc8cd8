"""Schemas that this process has fetched, by registry and number: each is asked for once.

A number that a registry does not know is asked for twice, with a pause between: a registry of several servers may not
have it everywhere yet. That it is not known is forgotten at once, since it may come.

Concurrency: any thread may ask, and two may fetch the same schema at the same time: a number has one schema for ever.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping

from leasehold.registries import RegisteredSchema, SchemaRegistry, open_registry

Schemas = Mapping[int, RegisteredSchema | None]
"""Schemas by number; None where the registry knows none."""

_PAUSE = 0.5  # seconds before a number is asked for again


class KnownSchemas:
    """The schemas of one registry."""

    def __init__(self, registry: SchemaRegistry, pause: Callable[[float], object] = time.sleep) -> None:
        self._registry, self._pause = registry, pause
        self._known: dict[int, RegisteredSchema] = {}

    def of(self, numbers: Iterable[int]) -> Schemas:
        """The schemas of these numbers. Raises `RegistryUnavailable`, `RegistryError`."""
        return {number: self._known.get(number) or self._fetched(number) for number in numbers}

    def all(self) -> Schemas:
        """What has been fetched so far."""
        return dict(self._known)

    def _fetched(self, number: int) -> RegisteredSchema | None:
        found = self._registry.schema(number)
        if found is None:
            self._pause(_PAUSE)
            found = self._registry.schema(number)
        if found is not None:
            self._known[number] = found
        return found


@functools.cache
def known_schemas(url: str) -> KnownSchemas:
    """What this process knows of the registry of this URL. Raises `ConfigError`, `MissingDependency`."""
    return KnownSchemas(open_registry(url))
