"""The flights of the demo in formats other than JSON: their schemas, and the same bodies by these."""

from __future__ import annotations

import functools
import io
import json
from typing import Any

from fastavro import parse_schema, schemaless_writer
from google.protobuf.message_factory import GetMessageClass

from leasehold.cli.demo.data import FIELDS
from leasehold.formats.protobuf.schemas import message_type, read_file

_NUMBERS = ("dep_delay", "arr_delay", "air_time")
AVRO = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": name, "type": ["null", "int" if name in _NUMBERS else "string"]} for name in FIELDS],
}
_KINDS = {name: "int32" if name in _NUMBERS else "string" for name in FIELDS}
_STATED = "".join(f"optional {kind} {name} = {number}; " for number, (name, kind) in enumerate(_KINDS.items(), 1))
PROTO = f'syntax = "proto3"; message Flight {{ {_STATED}}}'


def in_avro(body: bytes) -> bytes:
    """The same flight in Avro."""
    out = io.BytesIO()
    schemaless_writer(out, _parsed(), dict.fromkeys(FIELDS) | json.loads(body))
    return out.getvalue()


def in_protobuf(body: bytes) -> bytes:
    """The same flight in Protobuf."""
    stated = {name: value for name, value in json.loads(body).items() if value is not None}
    written: bytes = _message()(**stated).SerializeToString()
    return written


@functools.cache
def _parsed() -> Any:
    return parse_schema(AVRO)


@functools.cache
def _message() -> Any:
    return GetMessageClass(message_type(read_file(PROTO), None))
