"""CloudEvents in both modes for a pipeline file whose transform only picks columns; what is sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from cloudevents.core.bindings.kafka import KafkaMessage, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from leasehold import Event
from leasehold.hubs.log import LogHub
from tests.projected.flights import write

SQL = '''sql = """SELECT ce_subject AS id, {late} AS late, ce_id, ce_time, day, rest, ce_type, enqueuedTime AS told,
    hub, partition, sequenceNumber, ownerLevel FROM events"""
'''
SCHEMA = "ce_subject STRING, ce_id STRING, ce_type STRING, ce_time TIMESTAMP, delay {delay}, day DATE"
OLD = {"ce_specversion": "0.3", "ce_id": "1", "ce_source": "/gates", "ce_type": "u"}


def write_cloud_events(folder: Path, delay: str = "DOUBLE", late: str = "delay") -> Path:
    """The file for CloudEvents, whose entity is their subject."""
    return write(
        folder,
        schema=f'schema = "{SCHEMA.format(delay=delay)}"\nenvelope = "cloudevents"',
        sql=SQL.format(late=late),
        delete_when="""delete_when = "ce_type = 'deleted'" """,
    )


def event_of(message: KafkaMessage) -> Event:
    """A message of Kafka as an event of a log."""
    return Event(message.value, properties={name: value.decode() for name, value in message.headers.items()})


def cloud_events(rng: Random, count: int) -> list[Event]:
    """Events of some 20 entities, each in one of both modes: some delete, and some are not to be read."""
    made = []
    for number in range(count):
        attributes = {"id": str(number), "source": "/gates", "type": rng.choice(["u", "u", "u", "deleted"])}
        attributes |= {"specversion": "1.0", "subject": f"f{rng.randrange(20)}", "datacontenttype": "application/json"}
        data: dict[str, Any] = {"delay": rng.choice([1.5, -3, None, 0.1, "late"]), "day": "2026-02-03"}
        data |= {"note": "by hand"} if rng.random() < 0.2 else {}
        mode = rng.choice([to_binary_event, to_structured_event])
        one = event_of(mode(CloudEvent(attributes, None if attributes["type"] == "deleted" else data)))
        if rng.random() < 0.1:
            wrong: dict[str, str] = rng.choice([{}, {"content-type": "application/cloudevents-batch+json"}, OLD])
            one = Event(one.body, properties=wrong)
        elif rng.random() < 0.1:
            one = Event(one.body, properties={name.upper(): value for name, value in one.properties.items()})
        made.append(one)
    return made


def send_cloud_events(hub: LogHub, events: Sequence[Event]) -> None:
    """Each entity's events go to one partition; what has no subject goes anywhere."""
    for event in events:
        stated = {name.lower(): value for name, value in event.properties.items()}
        subject = stated.get("ce_subject")
        if subject is None:
            try:
                subject = json.loads(event.body).get("subject", "")
            except ValueError:
                subject = ""
        hub.send([event], partition=str(sum(str(subject).encode()) % len(hub.partition_ids())))
