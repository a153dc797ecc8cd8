"""An embedded log behind the server.

Owns the translation between the log's events and messages: bodies are bytes and properties text, so that a
message with another body is refused and other properties are stored as their text. What a text cannot keep, numbers as
numbers, message id, correlation id and content type, is in one property more, `leasehold-amqp`, which clients are not
given; one that cannot be read, whoever wrote it, counts as none. Offsets are sequence
numbers, as everywhere with the log. Other processes may append to the same log at any time: the server looks
for what is new.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from leasehold.errors import ConfigError
from leasehold.hubs.arrow import TEXT_MAP
from leasehold.hubs.log.hub import LogHub
from leasehold.hubs.log.partitioning import partition_of
from leasehold.model import EventPosition, PartitionProperties, PositionKind
from leasehold_testkit.emulators.amqp.conditions import NOT_IMPLEMENTED, AmqpError
from leasehold_testkit.emulators.amqp.messages import Message, Sections, StoredMessage, data_message, sections
from leasehold_testkit.emulators.amqp.types import decode, encode
from leasehold_testkit.emulators.event_hubs.addresses import Start
from leasehold_testkit.emulators.event_hubs.store import PartitionState, number_of, within

BESIDE = "leasehold-amqp"
"""The property of a log's event that keeps what its other columns cannot: base64 of an AMQP list."""

_READ = ("sequenceNumber", "offset", "enqueuedTime", "partitionKey", "properties", "body")


class LogBacked:
    """A `LogHub` as the server needs it."""

    blocking = True

    def __init__(self, log: LogHub) -> None:
        self.log = log

    @property
    def created_at(self) -> int:
        """When the log was made."""
        return round(self.log.created * 1_000)

    def partition_ids(self) -> Sequence[str]:
        return self.log.partition_ids()

    def state(self, partition: str) -> PartitionState:
        place = self._place(partition)
        last = list(self.log.read(partition, max(place.begin, place.end - 1), place.end, columns=("enqueuedTime",)))
        enqueued = last[0].column(0).cast(pa.int64())[0].as_py() // 1_000 if last else 0
        return PartitionState(place.begin, place.end, str(place.end - 1), enqueued)

    def partition_for(self, key: str) -> str:
        return str(partition_of(key, len(self.partition_ids())))

    def append(self, partition: str, messages: Sequence[Message]) -> None:
        self._place(partition)
        bodies, properties = [], []
        for message in messages:
            found = sections(message.bare)
            if not found.data:
                raise AmqpError(NOT_IMPLEMENTED, "an embedded log stores bodies of bytes only")
            bodies.append(b"".join(found.data))
            texts = [(_text(key), _text(value)) for key, value in found.application.items() if key != BESIDE]
            properties.append([*texts, *_beside(found)])
        table = pa.table(
            {
                "body": pa.array(bodies, pa.binary()),
                "partitionKey": pa.array([message.partition_key for message in messages], pa.string()),
                "properties": pa.array(properties, TEXT_MAP),
            }
        )
        self.log.append(table, partition=partition)

    def read(self, partition: str, start: int, most: int, most_bytes: int) -> list[StoredMessage]:
        place = self._place(partition)
        start = max(start, place.begin)
        found: list[StoredMessage] = []
        for batch in self.log.read(partition, start, min(place.end, start + most), columns=_READ, batch_rows=most):
            times = batch.column(2).cast(pa.int64()).to_pylist()
            found += within(
                (
                    StoredMessage(number, offset, time // 1_000, Message(_message(body, dict(properties)), key))
                    for number, offset, time, key, properties, body in zip(
                        batch.column(0).to_pylist(),
                        batch.column(1).to_pylist(),
                        times,
                        batch.column(3).to_pylist(),
                        batch.column(4).to_pylist(),
                        (value.as_py() for value in batch.column(5)),
                        strict=True,
                    )
                ),
                most_bytes,
            )
            break  # a second batch only follows a gap: the next read gives it
        return found

    def resolve(self, partition: str, start: Start) -> int:
        place = self._place(partition)
        if start.what == "offset" and start.value == "@latest":
            return place.end
        number = number_of(start) + (not start.inclusive)
        if start.what != "enqueued-time":
            return number
        return self.log.resolve(partition, EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=number / 1_000))

    def close(self) -> None:
        self.log.close()

    def _place(self, partition: str) -> PartitionProperties:
        try:
            return self.log.partition_properties([partition])[partition]
        except ConfigError:
            raise KeyError(partition) from None


def _beside(sections: Sections) -> list[tuple[str, str]]:
    """What the log's own columns cannot keep of a message, as a property; nothing if there is nothing."""
    typed = {key: value for key, value in sections.application.items() if type(value) is not str and key != BESIDE}
    if not typed and all(value is None for value in sections.properties):
        return []
    return [(BESIDE, b64encode(encode([list(sections.properties), typed])).decode())]


def _message(body: bytes, properties: dict[str, str]) -> bytes:
    """The sections of a message, with what is beside its texts."""
    kept = properties.pop(BESIDE, "")
    stated, typed = _read_beside(kept) if kept else ([], {})
    same = {key: value for key, value in typed.items() if properties.get(_text(key)) == _text(value)}
    return data_message(body, {**properties, **same}, stated)


def _read_beside(kept: str) -> tuple[list[Any], dict[Any, Any]]:
    try:
        found, _ = decode(b64decode(kept, validate=True))
    except (AmqpError, ValueError):
        return [], {}
    match found:
        case [list() as stated, dict() as typed]:
            return stated, typed
    return [], {}


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)
