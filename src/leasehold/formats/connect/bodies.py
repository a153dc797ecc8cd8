"""Bodies as Kafka Connect's `JsonConverter` writes them, with the schema of the value beside it or without.

Owns how the two are told apart: a body that has the members `schema` and `payload`, and no others, is both in one; any
other is the value itself. Bodies that begin as the converter writes them are cut many at once: what stands before
`,"payload":` is then a JSON object by itself, so the cut is between the two members. Other bodies with a schema are
taken apart by their JSON, one at a time. What a value has to be is for its reader to say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.formats.json_rows import compact, members_of

_HEAD, _BETWEEN, _OBJECT, _END = b'{"schema":', b',"payload":', b"{", b"}"
_WRAPPED = r'^(?:\xef\xbb\xbf)?[ \t\n\r]*\{[ \t\n\r]*"(?:schema|payload)"[ \t\n\r]*:'
_MEMBERS = ("schema", "payload")
_NULL = b"null"
_MOST_SCHEMAS = 64
"""Of more schemas, bodies are taken apart one at a time."""


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
    headed = pc.starts_with(bodies, _HEAD)
    likely, others = rows.filter(headed), rows.filter(pc.invert(headed))
    wrapped = pc.match_substring_regex(bodies.take(others) if len(likely) else bodies, _WRAPPED)
    if not len(likely) and not pc.any(wrapped).as_py():
        return [Values(None, rows, bodies)], {}
    plain = others.filter(pc.invert(wrapped))
    groups, uncut = _cut(bodies, likely)
    if len(plain):
        groups.append(Values(None, plain, bodies.take(plain)))
    left = pa.concat_arrays([others.filter(wrapped), uncut])
    taken_apart, reasons = _one_by_one(bodies.take(left), left)
    return groups + taken_apart, reasons


def _cut(bodies: pa.Array, likely: pa.Array) -> tuple[list[Values], pa.Array]:
    """Those of these rows that can be cut between their members, by schema; and the others.

    Bodies with one schema begin with the same bytes, up to the payload.
    """
    groups: list[Values] = []
    uncut = [likely[:0]]
    for _ in range(_MOST_SCHEMAS):
        if not len(likely):
            break
        first: bytes = bodies[likely[0].as_py()].as_py()
        head = first[: first.find(_BETWEEN) + len(_BETWEEN)]
        some = bodies.take(likely)
        begins = pc.or_(pc.starts_with(some, head + _OBJECT), pc.equal(some, head + _NULL + _END))
        mine = pc.and_(begins, pc.ends_with(some, _END))
        text = _object(head[len(_HEAD) : -len(_BETWEEN)])
        if text is None or not mine[0].as_py():
            uncut.append(likely[:1])
            likely = likely[1:]
            continue
        values = pc.binary_slice(some.filter(mine), len(head), -1)
        groups.append(Values(text, likely.filter(mine), pc.if_else(pc.equal(values, _NULL), None, values)))
        likely = likely.filter(pc.invert(mine))
    return groups, pa.concat_arrays([*uncut, likely])


def _object(text: bytes) -> str | None:
    """The text, if it is a JSON object."""
    try:
        return text.decode() if isinstance(json.loads(text), dict) else None
    except (ValueError, RecursionError):
        return None


def _text(member: object) -> str | None:
    return None if member is None else compact(member)


def _one_by_one(bodies: pa.Array, rows: pa.Array) -> tuple[list[Values], dict[int, str]]:
    groups: dict[str | None, tuple[list[int], list[bytes | None]]] = {}
    reasons: dict[int, str] = {}
    for row, body in zip(rows.to_pylist(), bodies.to_pylist(), strict=True):
        members = members_of(body, _MEMBERS, _MEMBERS)
        if isinstance(members, str):
            reasons[row] = members
            continue
        schema, value = None, body
        if members.keys() <= {*_MEMBERS} and "payload" in members:
            schema, payload = (_text(members.get(name)) for name in _MEMBERS)
            value = None if payload is None else payload.encode()
        mine, values = groups.setdefault(schema, ([], []))
        mine.append(row)
        values.append(value)
    made = [
        Values(schema, pa.array(mine, pa.int32()), pa.array(values, pa.binary()))
        for schema, (mine, values) in groups.items()
    ]
    return made, reasons
