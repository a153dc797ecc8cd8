"""The headers of events as hubs give them: what each says by its names, and what nobody can tell.

Owns where headers are: on Kafka and in a log they are `properties`; of a message of AMQP its content type is among
`systemProperties`, and comes before a property that is called so; and a header of Kafka that is no text, or is there
twice, is told in `systemProperties` by `hubs.kafka.chunks`. Names compare without regard to case. Refused: to raise,
whatever headers hold. Pure.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.formats.misfits import shown

EventHeaders: TypeAlias = pa.Table | pa.RecordBatch
"""Rows with the columns `properties` and `systemProperties`: maps of text."""

CONTENT_TYPE = "content-type"

_Pairs = Sequence[tuple[str, str | bytes | None]]
_OF_KAFKA = ("headersunreadable", "headersbase64")
"""System properties, in lower case, that tell of headers which `properties` cannot."""
_NOT_UTF8, _TWICE = "is not UTF-8", "is there twice, with different values"


@dataclass(frozen=True, slots=True)
class HeadersOfEvent:
    """The headers of one event by their names in lower case, and what is wrong with some."""

    values: Mapping[str, str | None]
    wrong: Mapping[str, str]


def content_types(headers: EventHeaders) -> pa.Array | None:
    """The content type of each event, null where it has none; None where it takes `headers_of` to tell."""
    of_hub, stated = _content_types(headers, "systemProperties"), _content_types(headers, "properties")
    return None if of_hub is None or stated is None else pc.coalesce(of_hub, stated)


def headers_of(headers: EventHeaders) -> Iterator[HeadersOfEvent]:
    """The headers of each event. The content type that AMQP has comes before a property that is called so."""
    stated = _maps(headers, "properties")
    system = _maps(headers, "systemProperties") if "systemProperties" in headers.schema.names else [()] * len(stated)
    for its, of_hub in zip(stated, system, strict=True):
        if not of_hub:
            yield _by_name(its)
            continue
        told: dict[str, Any] = dict(of_hub)
        if (unreadable := told.get("headersunreadable")) is not None:
            yield HeadersOfEvent({}, {CONTENT_TYPE: f"cannot be read: {shown(unreadable)}"})
            continue
        exact = _exact(told.get("headersbase64"))
        found = _by_name(its) if exact is None else _by_name(exact, encoded=True)
        if (of_amqp := told.get(CONTENT_TYPE)) is not None:
            wrong = {name: what for name, what in found.wrong.items() if name != CONTENT_TYPE}
            found = HeadersOfEvent({**found.values, CONTENT_TYPE: of_amqp}, wrong)
        yield found


def _content_types(headers: EventHeaders, column: str) -> pa.Array | None:
    """That of each map of a column; None where one has it twice, or tells of headers that are no texts."""
    rows = pa.array(range(headers.num_rows), pa.int64())
    if column not in headers.schema.names:
        return pa.nulls(headers.num_rows, pa.string())
    maps = _array(headers, column)
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    names = pc.utf8_lower(maps.keys[first:last])
    if maps.null_count or pc.any(pc.is_in(names, pa.array(_OF_KAFKA))).as_py():
        return None
    lists = pa.ListArray.from_arrays(pc.subtract(maps.offsets, first), names)
    there = pc.equal(names, CONTENT_TYPE)
    places = pc.list_parent_indices(lists).filter(there)
    if pc.count_distinct(places).as_py() < len(places):
        return None
    return maps.items[first:last].filter(there).take(pc.index_in(rows, places))


def _by_name(pairs: _Pairs, *, encoded: bool = False) -> HeadersOfEvent:
    alone: dict[str, Any] = dict(pairs)
    if len(alone) == len(pairs) and not encoded:
        return HeadersOfEvent(alone, {})
    values: dict[str, str | None] = {}
    wrong: dict[str, str] = {}
    for name, value in pairs:
        if value is None:
            continue
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError:
                wrong[name] = _NOT_UTF8
                continue
        if values.setdefault(name, value) != value:
            wrong[name] = _TWICE
    return HeadersOfEvent(values, wrong)


def _maps(headers: EventHeaders, column: str) -> list[_Pairs]:
    """The pairs of each map of a column, with names in lower case."""
    found = _array(headers, column)
    offsets = found.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    names = [name.lower() for name in found.keys[first:last].to_pylist()]
    pairs = list(zip(names, found.items[first:last].to_pylist(), strict=True))
    bounds = zip(offsets, offsets[1:], found.is_valid().to_pylist(), strict=False)
    return [pairs[begin - first : end - first] if valid else () for begin, end, valid in bounds]


def _array(headers: EventHeaders, column: str) -> pa.Array:
    found = headers.column(column)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _exact(text: str | None) -> _Pairs | None:
    """All headers of a message of Kafka of which a map of texts says less, as `hubs.kafka.chunks` has them."""
    try:
        return [(name.lower(), None if value is None else b64decode(value)) for name, value in json.loads(text or "")]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None  # nobody's who knows that form
