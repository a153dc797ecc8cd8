"""An event as a handler emits it. What a sink does with it is in `sinks.beside.outbox`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from leasehold.sinks.rules.ordering import Key


@dataclass(frozen=True, slots=True)
class EmittedEvent:
    """An event as a handler emits it.

    hub, partition, sequence_number    of its cause
    place                              among what the cause has emitted, from 0
    entity                             the key of the cause's entity, in the order of the spec
    key, body, properties              what is sent
    """

    hub: str
    partition: str
    sequence_number: int
    place: int
    entity: Key
    body: bytes
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
