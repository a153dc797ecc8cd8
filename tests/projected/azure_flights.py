"""Bodies in Avro whose schemas are in Azure's registry, for a pipeline file whose transform only picks columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

from leasehold import Event
from leasehold.hubs.log import LogHub
from tests.azure_registry import AzureRegistry
from tests.projected.flights import AVRO, avro_start, write

NOBODYS = "f" * 32
"""The id of a schema that no registry has."""


def write_azure(folder: Path, url: str, **changes: str) -> Path:
    """The file for bodies in Avro whose schemas are in this registry."""
    return write(folder, **{"rescue": f'rescue = "rest"\nformat = "avro"\nregistry = "{url}"', **changes})


def named(body: bytes, id: str) -> Event:
    """A body as a log has it, with the schema that it was written by."""
    return Event(body, properties={"content-type": f"avro/binary+{id}"})


def azure_events(registry: AzureRegistry, rng: Random, sent: Sequence[bytes]) -> list[Event]:
    """The same bodies, each with one of two schemas, or with one that nobody knows; some name none."""
    texts = [json.dumps({**AVRO, "doc": name}) for name in ("one", "other")]
    ids = [registry.server.register("flights", "Flight", text) for text in texts]
    made = [named(body, rng.choice([*ids, NOBODYS]) if rng.random() < 0.2 else ids[0]) for body in sent]
    wrong = [{}, {"content-type": "application/json"}]
    return [Event(one.body, properties=rng.choice(wrong)) if rng.random() < 0.05 else one for one in made]


def send_azure(hub: LogHub, events: Sequence[Event]) -> None:
    """Each entity's events go to one partition."""
    for event in events:
        hub.send([event], partition=str(sum(avro_start(event.body)) % len(hub.partition_ids())))
