"""Schemas that this process has fetched, by registry and number: each is asked for once.

A number that a registry does not know is asked for twice, with a pause between: a registry of several servers may not
have it everywhere yet. All numbers of a call wait together, since bodies that are not Avro may name thousands. That a
number is not known is forgotten at once, since its schema may come. A schema of Protobuf is compiled when it is
fetched, by who waits for registries: what the machine lacks for that rejects no event.

Concurrency: any thread may ask, and two may fetch the same schema at the same time: a number has one schema for ever.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable

from leasehold.errors import ConfigError
from leasehold.registries import RegisteredSchema, SchemaRegistry, Schemas, open_registry
from leasehold.registries.contract import PROTOBUF
from leasehold.registries.protobuf import compiled

_PAUSE = 0.5  # seconds before the numbers that are lacking are asked for again


class KnownSchemas:
    """The schemas of one registry."""

    def __init__(self, registry: SchemaRegistry, pause: Callable[[float], object] = time.sleep) -> None:
        self._registry, self._pause = registry, pause
        self._known: dict[int, RegisteredSchema] = {}

    def of(self, numbers: Collection[int]) -> Schemas:
        """The schemas of these numbers. Raises `RegistryUnavailable`, `RegistryError`."""
        if self._fetch(numbers):
            self._pause(_PAUSE)
            self._fetch(numbers)
        return {number: self._known.get(number) for number in numbers}

    def of_subjects(self, subjects: Iterable[str]) -> Schemas:
        """The schemas of all versions that these subjects have now; which those are is asked each time.

        Raises `ConfigError` for a subject that has none, `RegistryUnavailable`, `RegistryError`.
        """
        numbers: set[int] = set()
        for subject in subjects:
            mine = self._registry.numbers(subject)
            if not mine:
                remedy = "Correct the name: serializers call the subject of a topic's values TOPIC-value"
                raise ConfigError("subjects", subject, "the registry has no version of it", remedy)
            numbers.update(mine)
        return self.of(numbers)

    def all(self) -> Schemas:
        """What has been fetched so far."""
        return dict(self._known)

    def _fetch(self, numbers: Collection[int]) -> bool:
        """Fetch those of these that are not known. Whether the registry lacks any."""
        wanted = [number for number in numbers if number not in self._known]
        found = self._registry.schemas(wanted) if wanted else {}
        self._known.update((number, _whole(schema)) for number, schema in found.items() if schema is not None)
        return None in found.values()


def _whole(schema: RegisteredSchema) -> RegisteredSchema:
    """The same schema as one text, which tasks read without a compiler. Raises `RegistryUnavailable`."""
    if schema.kind != PROTOBUF:
        return schema
    try:
        return RegisteredSchema(PROTOBUF, compiled(schema.text, schema.files))
    except ConfigError as error:
        return RegisteredSchema(PROTOBUF, schema.text, wrong=error.rule)


@functools.cache
def known_schemas(url: str) -> KnownSchemas:
    """What this process knows of the registry of this URL. Raises `ConfigError`, `MissingDependency`."""
    return KnownSchemas(open_registry(url))
