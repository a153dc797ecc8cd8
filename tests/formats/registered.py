"""Bodies that name their schema, as Confluent's serializers write them to any registry, and what is read of them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from leasehold.formats import ReadBodies

COLUMNS = pa.schema([("id", pa.string()), ("gate", pa.string()), ("n", pa.int64())])

FLIGHTS = """syntax = "proto3"; package flights; import "google/protobuf/timestamp.proto";
message Old { string id = 1; int64 n = 2; google.protobuf.Timestamp at = 3; }
message New { int64 n = 1; optional string gate = 2; string id = 3; bool more = 4; message Inner { string id = 7; } }
"""


def schema(**fields: Any) -> str:
    """A schema of Avro with these fields, by their types."""
    return json.dumps(
        {"type": "record", "name": "F", "fields": [{"name": name, "type": one} for name, one in fields.items()]}
    )


def headed(number: int, body: bytes) -> bytes:
    """A body behind the number of its schema."""
    return b"\0" + number.to_bytes(4, "big") + body


def outcome(read: ReadBodies) -> list[Any]:
    """The rows, and in place of each that was rejected its reason."""
    reasons = [None] * len(read.columns) if read.reasons is None else read.reasons.to_pylist()
    return [reason or tuple(row.values()) for row, reason in zip(read.columns.to_pylist(), reasons, strict=True)]


def written(client: SchemaRegistryClient) -> list[bytes | None]:
    """Bodies of two schemas, of which the later one has other fields, in another order."""
    context = SerializationContext("flights", MessageField.VALUE)
    old = AvroSerializer(client, schema(id="string", n="int"))
    new = AvroSerializer(client, schema(n="long", gate=["null", "string"], id="string", more="boolean"))
    bodies = []
    for number in range(300):
        if number % 3:
            bodies.append(old({"id": f"o{number}", "n": number}, context))
        else:
            bodies.append(new({"id": f"n{number}", "n": number, "gate": "B7", "more": True}, context))
    return bodies
