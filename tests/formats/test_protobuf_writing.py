"""Rows that are written in Protobuf are the messages that they tell of, whatever the schema is."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from math import isfinite
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor import FieldDescriptor

from leasehold.formats.protobuf.writing import ProtobufWriter
from tests.formats.drawn_protobuf import Drawn
from tests.formats.protobuf_schemas import message_class


class NotTold(Exception):
    """A value that a row of JSON cannot tell."""


def told(message: Any) -> dict[str, Any]:
    """A message as a row of JSON. Raises `NotTold`."""
    row = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            row[field.name] = [_told(field, one) for one in value]
        elif not field.has_presence or message.HasField(field.name):
            row[field.name] = _told(field, value)
    return row


def _told(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None:
        names = {one.number: one.name for one in field.enum_type.values}
        return names.get(value, str(value))
    if isinstance(value, float) and not isfinite(value):
        raise NotTold
    if field.message_type is None:
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value
    if field.message_type.name == "Timestamp":
        if value.nanos % 1_000:
            raise NotTold
        since = timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
        return (datetime(1970, 1, 1, tzinfo=UTC) + since).isoformat()
    return value.value if field.message_type.name.endswith("Value") else told(value)


def drawn_are_written(seed: int, schemas: int) -> None:
    dice, written = Random(seed), 0
    for _ in range(schemas):
        drawn = Drawn(dice)
        kind, writer, rows, expected = message_class(drawn.text), ProtobufWriter(drawn.text, "p.M"), [], []
        for _ in range(20):
            message = kind.FromString(drawn.body())
            try:
                rows.append(json.dumps(told(message)).encode())
                expected.append(message)
            except NotTold:
                continue
        bodies, bad, reason = writer.write(pa.array(rows, pa.binary()))
        assert (bad, reason) == (None, ""), (drawn.text, bad is not None and rows[bad])
        assert [kind.FromString(body) for body in bodies.to_pylist()] == expected, drawn.text
        written += len(rows)
    assert written > 10 * schemas


def test_rows_of_a_few_random_schemas_are_written() -> None:
    drawn_are_written(71, 5)


@pytest.mark.soak
@pytest.mark.timeout(3600)  # each schema is compiled by a process of its own
@pytest.mark.parametrize("part", range(20))
def test_rows_of_twenty_thousand_random_schemas_are_written(part: int) -> None:
    drawn_are_written(Random().randrange(2**32), 1_000)
