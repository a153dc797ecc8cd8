"""Which schema a body was written by, as the encoders of Azure's Schema Registry say it.

Owns the form of the content type: `avro/binary+` and the schema's id, a GUID in 32 hexadecimal digits, which is a
number of 128 bits here. The body is the value alone. On Event Hubs the content type is that of the message, on Kafka
the header `content-type`, as Azure's serializers for Kafka write it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from leasehold.formats.event_headers import CONTENT_TYPE, EventHeaders, HeadersOfEvent, content_types, headers_of
from leasehold.formats.misfits import NO_BODY, shown
from leasehold.formats.schema_headers import NamedBodies

FORM = "avro/binary+ and the 32 hexadecimal digits of a schema"
NO_CONTENT_TYPE = f"it has no {CONTENT_TYPE}, which is to be {FORM}"

_NAMED = re.compile(r"avro/binary\+([0-9a-f]{32})", re.IGNORECASE | re.ASCII)


def by_content_type(bodies: pa.Array, headers: EventHeaders) -> Iterator[NamedBodies]:
    """These bodies by the schemas that the headers of their events name."""
    found: dict[int, list[int]] = {}
    unnamed, reasons = [], []
    for row, (there, number) in enumerate(zip(bodies.is_valid().to_pylist(), _numbers(headers), strict=True)):
        if isinstance(number, int) and there:
            found.setdefault(number, []).append(row)
        else:
            unnamed.append(row)
            reasons.append(str(number) if there else NO_BODY)
    for number, places in found.items():
        rows = pa.array(places, pa.int32())
        yield NamedBodies(number, rows, bodies.take(rows))
    if unnamed:
        yield NamedBodies(None, pa.array(unnamed, pa.int32()), reasons=reasons)


def _numbers(headers: EventHeaders) -> Iterator[int | str]:
    """The number of the schema that each event names; or why it names none."""
    stated = content_types(headers)
    if stated is None:
        yield from map(_number_of, headers_of(headers))
        return
    each = stated.dictionary_encode("encode")  # thousands of events, and a few content types
    numbers = [_number(content_type) for content_type in each.dictionary.to_pylist()]
    yield from (numbers[place] for place in each.indices.to_pylist())


def _number_of(headers: HeadersOfEvent) -> int | str:
    if (wrong := headers.wrong.get(CONTENT_TYPE)) is not None:
        return f"the header {CONTENT_TYPE} {wrong}"
    return _number(headers.values.get(CONTENT_TYPE))


def _number(content_type: str | None) -> int | str:
    if content_type is None:
        return NO_CONTENT_TYPE
    named = _NAMED.fullmatch(content_type.strip())
    return f"its {CONTENT_TYPE} is {shown(content_type)}, and not {FORM}" if named is None else int(named[1], 16)
