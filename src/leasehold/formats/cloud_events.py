"""CloudEvents, of both modes side by side, to the same rows: attributes beside the columns of the data.

Owns what the headers of an event say of its body, by the bindings of CloudEvents 1.0 to Kafka and to AMQP:

1. A content type `application/cloudevents+json` means structured mode: the body is a JSON object with the attributes,
   and with the data as `data` or, in base64, `data_base64`. Headers that repeat attributes are not looked at.
2. Else a header `ce_specversion` (Kafka), or `cloudEvents:specversion` or `cloudEvents_specversion` (AMQP), means
   binary mode: the body is the data, attributes are headers of that prefix, and `datacontenttype` is the content type.
3. Else it is no CloudEvent, and rejected; so are batches, other formats of an event, other versions than 1, and events
   without `id`, `source` or `type`.

A column called `ce_<attribute>` takes that attribute; every other one is of the data, which is read by the pipeline's
format, alike in both modes. An event without data is a row, in which the columns of the data are null: a topic has
tombstones so. An empty body is no data, as CloudEvents' own SDK writes it, but in Protobuf, where it is a message.

Names of headers compare without regard to case. A header that is there twice with two values, or is no UTF-8, as far as
the hub tells that, rejects an event that needs it: either choice would lose something, and the order of headers is not
kept by whoever keeps them as a map. Nothing is decoded from percent-encoding, which is of HTTP alone.

Why the headers are given with the bodies, each time: an event is read again where rejected events are retried, by
another process, perhaps when the hub has removed it, and has to mean the same then. What is kept of a rejected event of
a table without a handler has all columns of the hub, `properties` and `systemProperties` among them, in a plain process
always and on Spark where an envelope is stated (`loop.tasks`). Where the body alone is kept or handed on (parked
events, and with them all handlers; queues), an envelope is refused by name (`handlers.settings.Bodies`).

Refused: to raise, whatever bodies and headers hold. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa

from leasehold.body_format import JSON, PROTOBUF, TRUNCATE, BodyFormat
from leasehold.errors import ConfigError
from leasehold.formats.event_headers import CONTENT_TYPE, EventHeaders, HeadersOfEvent, headers_of
from leasehold.formats.format_readers import ReadBodies
from leasehold.formats.json_rows import compact, members_of
from leasehold.formats.json_values import AsWritten, Convert, Verbatim, converter, misfit
from leasehold.formats.misfits import Misfit, shown

_PREFIX = "ce_"
_PREFIXES = (_PREFIX, "cloudevents:", "cloudevents_")
"""What attributes' headers begin with, in lower case: of Kafka, and of AMQP in two ways."""
_ATTRIBUTE = re.compile(r"(?!data\Z)[a-z0-9]+")
_VERSION = re.compile(r"1\.[0-9]+")
_REQUIRED = ("specversion", "id", "source", "type")
_OF_EVENTS, _STRUCTURED = "application/cloudevents", "application/cloudevents+json"
_OF_JSON = re.compile(r"[^/]+/(?:.+\+)?json")
_MILLISECONDS = re.compile(r"-?[0-9]{1,18}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DataReader(Protocol):
    """Reads the data of events."""

    def read(self, bodies: pa.Array) -> ReadBodies: ...


class _NoEvent(Exception):
    """Why an event is rejected."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """An event: its attributes, as text or as JSON has them, and its data; None where it has none."""

    attributes: Mapping[str, Any]
    data: bytes | None


def data_columns(schema: pa.Schema) -> pa.Schema:
    """The columns that the data of events is read into. Raises `ConfigError` for one that no attribute can be."""
    for field in schema:
        if field.name.startswith(_PREFIX):
            _check_attribute(field)
    return pa.schema([field for field in schema if not field.name.startswith(_PREFIX)])


class CloudEvents:
    """Reads CloudEvents into `schema`, which ends with the rescue column where `how` names one.

    `data` reads what `data_columns` leaves; None where that is nothing, and nobody then looks at the data.
    """

    def __init__(self, schema: pa.Schema, how: BodyFormat, data: DataReader | None) -> None:
        self._schema, self._format, self._data = schema, how.format, data
        self._columns: list[tuple[str, pa.Field, Convert]] = [
            (field.name.removeprefix(_PREFIX), field, converter(field.type, cut=how.timestamps == TRUNCATE))
            for field in schema
            if field.name.startswith(_PREFIX) and field.name != how.rescue
        ]
        self._asked = tuple(dict.fromkeys((*_REQUIRED, *(name for name, _, _ in self._columns))))
        self._members = frozenset((*self._asked, "datacontenttype", "data", "data_base64"))

    def read(self, bodies: pa.Array, headers: EventHeaders) -> ReadBodies:
        """Read these events, whose bodies are of type binary."""
        reasons: list[str | None] = []
        rows: list[list[Any]] = []
        data: list[bytes | None] = []
        for body, one in zip(bodies.to_pylist(), headers_of(headers), strict=True):
            row, content, reason = self._row(body, one)
            rows.append(row)
            data.append(content)
            reasons.append(reason)
        of_data, unknown = self._read_data(data, reasons)
        columns = {field.name: _array(rows, place, field) for place, (_, field, _) in enumerate(self._columns)}
        arrays = [columns[name] if name in columns else of_data[name] for name in self._schema.names]
        read = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return ReadBodies(read, pa.array(reasons, pa.string()) if any(reasons) else None, unknown)

    def _row(self, body: bytes | None, headers: HeadersOfEvent) -> tuple[list[Any], bytes | None, str | None]:
        """The values of the attributes' columns, the data, and the reason if the event is rejected."""
        try:
            event = self._opened(body, headers)
            return [self._value(event, *column) for column in self._columns], event.data, None
        except _NoEvent as error:
            return [None] * len(self._columns), None, str(error)
        except Misfit as error:
            return [None] * len(self._columns), None, error.reason

    def _value(self, event: _Opened, name: str, field: pa.Field, convert: Convert) -> Any:
        value = event.attributes.get(name)
        if value is None:
            return None
        if type(value) is not str and pa.types.is_timestamp(field.type):  # a number would count as seconds
            raise misfit(value, "TIMESTAMP").within(field.name)
        try:
            return convert(value)
        except AsWritten:
            raise misfit(value, "STRING").within(field.name) from None
        except Misfit as error:
            raise error.within(field.name) from None

    def _opened(self, body: bytes | None, headers: HeadersOfEvent) -> _Opened:
        content_type = _text(headers, CONTENT_TYPE)
        media = (content_type or "").partition(";")[0].strip().lower()
        if media == _STRUCTURED:
            event = self._structured(body)
        elif media.startswith(f"{_OF_EVENTS}-batch"):
            raise _NoEvent(f"no CloudEvent: {shown(media)} is a batch of them, and each is to be sent by itself")
        elif media.startswith(_OF_EVENTS):
            raise _NoEvent(f"no CloudEvent that is read here: its format is {shown(media)}, and not {_STRUCTURED}")
        else:
            event = self._binary(body, content_type, headers)
        for name in _REQUIRED:
            if event.attributes.get(name) in (None, ""):
                raise _NoEvent(f"no CloudEvent: it has no {name}")
        version = event.attributes["specversion"]
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise _NoEvent(f"no CloudEvent of version 1: its specversion is {shown(version)}")
        return event

    def _binary(self, body: bytes | None, content_type: str | None, headers: HeadersOfEvent) -> _Opened:
        for prefix in _PREFIXES:
            if _text(headers, f"{prefix}specversion") is not None:
                break
        else:
            raise _NoEvent(f"no CloudEvent: it has no header ce_specversion, and no {CONTENT_TYPE} {_STRUCTURED}")
        attributes = {name: _text(headers, f"{prefix}{name}") for name in self._asked}
        attributes["datacontenttype"] = content_type
        if prefix != _PREFIX and (time := attributes.get("time")) is not None:
            attributes["time"] = _time_of_amqp(time)
        return _Opened(attributes, self._there(body))

    def _structured(self, body: bytes | None) -> _Opened:
        event = members_of(body, self._members, ("data",))
        if isinstance(event, str):
            raise _NoEvent(event)
        return _Opened(event, self._there(self._data_of(event)))

    def _data_of(self, event: Mapping[str, Any]) -> bytes | None:
        encoded, data = event.get("data_base64"), event.get("data")
        if encoded is not None:
            if data is not None:
                raise _NoEvent("no CloudEvent: it has both data and data_base64")
            try:
                decoded: bytes = converter(pa.binary())(encoded)
            except Misfit as error:
                raise error.within("data_base64") from None
            return decoded
        if "data" not in event:
            return None
        stated = event.get("datacontenttype")
        media = stated.partition(";")[0].strip().lower() if isinstance(stated, str) else "application/json"
        if not _OF_JSON.fullmatch(media):
            if type(data) is not str:
                what = "an object or array" if type(data) is Verbatim else shown(data)
                raise _NoEvent(f"the field data is {what}, which is not a text of the type {shown(media)}")
            return data.encode()
        if self._format != JSON:
            raise _NoEvent(f"the data of the event is JSON, and the format is {self._format.title()}")
        return (data if type(data) is Verbatim else compact(data)).encode()

    def _there(self, data: bytes | None) -> bytes | None:
        """The data, if that is any."""
        return data if data or self._format == PROTOBUF else None

    def _read_data(
        self, data: Sequence[bytes | None], reasons: list[str | None]
    ) -> tuple[Mapping[str, pa.Array], frozenset[int]]:
        """The columns of the data, null where there is none; `reasons` gets those of what cannot be read."""
        if self._data is None:
            return {}, frozenset()
        there = [place for place, content in enumerate(data) if content is not None and reasons[place] is None]
        read = self._data.read(pa.array([data[place] for place in there], pa.binary()))
        if read.reasons is not None:
            for place, reason in zip(there, read.reasons.to_pylist(), strict=True):
                reasons[place] = reason
        columns = dict(zip(read.columns.schema.names, read.columns.columns, strict=True))
        if len(there) < len(data):
            rows: list[int | None] = [None] * len(data)
            for row, place in enumerate(there):
                rows[place] = row
            back = pa.array(rows, pa.int32())
            columns = {name: column.take(back) for name, column in columns.items()}
        return columns, read.unknown


def _check_attribute(field: pa.Field) -> None:
    name, type_ = field.name.removeprefix(_PREFIX), field.type
    if not _ATTRIBUTE.fullmatch(name):
        rule = "a column that begins with ce_ takes an attribute, whose name is of lower-case letters and digits"
        raise ConfigError("schema", field.name, rule, "Name one: ce_id; and call fields of the data otherwise")
    if not pa.types.is_string(type_) and not (name == "time" and pa.types.is_timestamp(type_) and type_.tz):
        rule = "an attribute is a STRING" + (" or a TIMESTAMP" if name == "time" else "")
        raise ConfigError("schema", field.name, rule, "Give the column this type, and cast it in sql")


def _array(rows: Sequence[Sequence[Any]], place: int, field: pa.Field) -> pa.Array:
    return pa.array([row[place] for row in rows], field.type)


def _text(headers: HeadersOfEvent, name: str) -> str | None:
    if name in headers.wrong:
        raise _NoEvent(f"the header {name} {headers.wrong[name]}")
    return headers.values.get(name)


def _time_of_amqp(value: str) -> str:
    """A time of AMQP, in milliseconds since 1970, as text; another one as it is."""
    if _MILLISECONDS.fullmatch(value):
        try:
            at = _EPOCH + timedelta(milliseconds=int(value))
        except OverflowError:
            return value
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
