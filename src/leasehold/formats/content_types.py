"""Which schema a body was written by, as the encoders of Azure's Schema Registry say it.

Owns the form of the content type: `avro/binary+` and the schema's id, a GUID in 32 hexadecimal digits, which is a
number of 128 bits here. The body is the value alone. On Event Hubs the content type is that of the message, on Kafka
the header `content-type`, as Azure's serializers for Kafka write it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from leasehold.formats.event_headers import CONTENT_TYPE, EventHeaders, HeadersOfEvent, headers_of
from leasehold.formats.misfits import NO_BODY, shown
from leasehold.formats.schema_headers import NamedBodies

FORM = "avro/binary+ and the 32 hexadecimal digits of a schema"
NO_CONTENT_TYPE = f"it has no {CONTENT_TYPE}, which is to be {FORM}"

_NAMED = re.compile(r"avro/binary\+([0-9a-f]{32})", re.IGNORECASE | re.ASCII)


def by_content_type(bodies: pa.Array, headers: EventHeaders) -> Iterator[NamedBodies]:
    """These bodies by the schemas that the headers of their events name."""
    found: dict[int, list[int]] = {}
    unnamed, reasons = [], []
    for row, (there, one) in enumerate(zip(bodies.is_valid().to_pylist(), headers_of(headers), strict=True)):
        number = _number(one) if there else NO_BODY
        if isinstance(number, str):
            unnamed.append(row)
            reasons.append(number)
        else:
            found.setdefault(number, []).append(row)
    for number, places in found.items():
        rows = pa.array(places, pa.int32())
        yield NamedBodies(number, rows, bodies.take(rows))
    if unnamed:
        yield NamedBodies(None, pa.array(unnamed, pa.int32()), reasons=reasons)


def _number(headers: HeadersOfEvent) -> int | str:
    """The number of the schema that an event names; or why it names none."""
    if (wrong := headers.wrong.get(CONTENT_TYPE)) is not None:
        return f"the header {CONTENT_TYPE} {wrong}"
    content_type = headers.values.get(CONTENT_TYPE)
    if content_type is None:
        return NO_CONTENT_TYPE
    named = _NAMED.fullmatch(content_type.strip())
    return f"its {CONTENT_TYPE} is {shown(content_type)}, and not {FORM}" if named is None else int(named[1], 16)
