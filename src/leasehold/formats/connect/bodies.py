"""Bodies as Kafka Connect's `JsonConverter` writes them, with the schema of the value beside it or without.

Owns how the two are told apart: a body whose first member is `schema` or `payload` is both of them in one object; any
other is the value itself. Bodies that begin as the converter writes them are cut many at once: what stands before
`,"payload":` is then a JSON object by itself, so the cut is between the two members. Other bodies with a schema are
taken apart by their JSON, one at a time. What a value has to be is for its reader to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.formats.json_rows import compact, members_of

_HEAD, _BETWEEN, _END = b'{"schema":', b',"payload":', b"}"
_WRAPPED = r'^(?:\xef\xbb\xbf)?[ \t\n\r]*\{[ \t\n\r]*"(?:schema|payload)"[ \t\n\r]*:'
_MEMBERS = ("schema", "payload")
_NULL = b"null"


@dataclass(frozen=True, slots=True)
class Values:
    """Values with one schema: its JSON text, None without one; the rows of their bodies, and the values as JSON.

    A value is null where the payload of its body is.
    """

    schema: str | None
    rows: pa.Array
    values: pa.Array


def values_of(bodies: pa.Array) -> tuple[list[Values], dict[int, str]]:
    """The values in these bodies, none of which is null, by schema; and why one cannot be taken apart, by its row."""
    rows = pa.array(range(len(bodies)), pa.int32())
    wrapped = pc.match_substring_regex(bodies, _WRAPPED)
    if not pc.any(wrapped).as_py():
        return [Values(None, rows, bodies)], {}
    plain = pc.invert(wrapped)
    groups = [Values(None, rows.filter(plain), bodies.filter(plain))] if pc.any(plain).as_py() else []
    ends = pc.and_(pc.starts_with(bodies, _HEAD), pc.ends_with(bodies, _END))
    likely = pc.and_(wrapped, pc.and_(ends, pc.match_substring(bodies, _BETWEEN)))
    left = [rows.filter(pc.and_not(wrapped, likely))]
    if pc.any(likely).as_py():
        for group in _cut(bodies.filter(likely), rows.filter(likely)):
            if group.schema is None:
                left.append(group.rows)
            else:
                groups.append(group)
    others = pa.concat_arrays(left)
    taken_apart, reasons = _one_by_one(bodies.take(others), others)
    return groups + taken_apart, reasons


def _cut(bodies: pa.Array, rows: pa.Array) -> Iterator[Values]:
    """Those that are cut between their members, by schema; those that are not have none."""
    parts = pc.split_pattern(bodies, pattern=_BETWEEN, max_splits=1)
    heads = pc.list_element(parts, 0).dictionary_encode()
    values = pc.binary_slice(pc.list_element(parts, 1), 0, -1)
    values = pc.if_else(pc.equal(values, _NULL), None, values)
    for number, head in enumerate(heads.dictionary.to_pylist()):
        mine = pc.equal(heads.indices, number)
        text = head[len(_HEAD) :].decode("utf-8", "replace")
        yield Values(text if _is_object(text) else None, rows.filter(mine), values.filter(mine))


def _text(member: object) -> str | None:
    return None if member is None else compact(member)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _one_by_one(bodies: pa.Array, rows: pa.Array) -> tuple[list[Values], dict[int, str]]:
    groups: dict[str | None, tuple[list[int], list[bytes | None]]] = {}
    reasons: dict[int, str] = {}
    for row, body in zip(rows.to_pylist(), bodies.to_pylist(), strict=True):
        members = members_of(body, _MEMBERS, _MEMBERS)
        if isinstance(members, str):
            reasons[row] = members
            continue
        schema, payload = (_text(members.get(name)) for name in _MEMBERS)
        mine, values = groups.setdefault(schema, ([], []))
        mine.append(row)
        values.append(None if payload is None else payload.encode())
    made = [
        Values(schema, pa.array(mine, pa.int32()), pa.array(values, pa.binary()))
        for schema, (mine, values) in groups.items()
    ]
    return made, reasons
