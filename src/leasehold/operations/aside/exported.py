"""The file that an operator mends: what is set aside as lines of JSON, and the way in again.

Owns the format. A line is a record as `list --json` has it, whole, with its `kind`. To read it back, only what names
the record and its body count; all else may stay or go. A body is a text, or base64 where `bodyEncoding` says so. A file
is read whole before anything is changed: a line that is no such record refuses the file by its number. Pure.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from leasehold.errors import ConfigError
from leasehold.sinks.rules.table_spec import folded

Name = tuple[object, ...]
"""What names a record among those of its kind, and says that it is the one that was exported."""


@dataclass(frozen=True, slots=True)
class ExportedLine:
    """A line of a file: which event it is of, and its body now."""

    hub: str | None
    partition: str | None
    number: int
    body: bytes | None


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """The lines of a file by their names, whose fields are `fields`."""

    fields: Sequence[str]
    lines: Mapping[Name, ExportedLine]

    def name_of(self, record: Mapping[str, object]) -> Name:
        """What names a record."""
        return tuple(record.get(field) for field in self.fields)

    @property
    def events(self) -> Collection[tuple[str | None, int]]:
        """The partition and number of each line."""
        return {(line.partition, line.number) for line in self.lines.values()}


def body_as_json(body: object) -> dict[str, object]:
    """A body as JSON has it: as text, or in base64 where it is bytes that are not UTF-8; `none` where there is none."""
    if not isinstance(body, bytes):
        return {"body": body, "bodyEncoding": "none" if body is None else "text"}
    try:
        return {"body": body.decode(), "bodyEncoding": "text"}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode(), "bodyEncoding": "base64"}


def body_as_bytes(body: object) -> bytes | None:
    """A body as it is compared and sent."""
    return body if body is None or isinstance(body, bytes) else str(body).encode("utf-8", "replace")


def key_values(body: object, names: Collection[str]) -> dict[str, object]:
    """The values of these key columns as far as a body has them at its top. Numbers are what is written."""
    try:
        value = json.loads(body_as_bytes(body) or b"", parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return {}
    columns = {folded(name): name for name in names}
    members = value.items() if isinstance(value, dict) else ()
    return {columns[folded(name)]: at for name, at in members if folded(name) in columns and at is not None}


def line_of(kind: str, record: Mapping[str, object]) -> str:
    """A record as a line of a file."""
    return json.dumps({"kind": kind, **record})


def read_lines(kind: str, fields: Sequence[str], lines: Iterable[str]) -> ExportedFile:
    """A file of records of this kind, which these fields name. Raises `ConfigError` that names the line."""
    read: dict[Name, ExportedLine] = {}
    for place, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            name, line = _line(kind, fields, text)
            if name in read:
                raise ValueError("an earlier line is of the same")
        except (ValueError, RecursionError) as error:
            remedy = f"Mend it, or export anew by leasehold aside export --kind {kind}"
            raise ConfigError("--from", f"line {place}", f"not a record of kind {kind}: {error}", remedy) from error
        read[name] = line
    return ExportedFile(fields, read)


def _line(kind: str, fields: Sequence[str], text: str) -> tuple[Name, ExportedLine]:
    record = json.loads(text)
    if not isinstance(record, dict) or record.get("kind") != kind:
        raise ValueError(f'it is no JSON object with "kind": "{kind}"')
    for field in (*fields, "body", "bodyEncoding"):
        if field not in record or not isinstance(record[field], str | int | None):
            raise ValueError(f"{field} is missing, or neither a text nor a number")
        str(record[field]).encode()  # half a surrogate pair is no text that a database can be asked for
    number = record.get("sequenceNumber", record.get("number"))
    if type(number) is not int:
        raise ValueError("its number is no whole number")
    hub, partition = (None if record.get(one) is None else str(record[one]) for one in ("hub", "partition"))
    body = _body(record["body"], record["bodyEncoding"])
    return tuple(record[field] for field in fields), ExportedLine(hub, partition, number, body)


def _body(body: object, encoding: object) -> bytes | None:
    if body is None and encoding == "none":
        return None
    if not isinstance(body, str) or encoding not in ("text", "base64"):
        raise ValueError("a body is a text, and its bodyEncoding text or base64")
    try:
        return body.encode() if encoding == "text" else base64.b64decode(body, validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError(f"its body cannot be read as {encoding}: {error}") from error
