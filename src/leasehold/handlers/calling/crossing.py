"""Events, states and answers on their way between two processes, as JSON with the types that it lacks.

Owns the form. Nothing that comes across runs code when it is read. Refuses by name what has no place in the form: a
value of a class of its own. Between two processes of one release, started by each other, so it has no version.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from leasehold.errors import UsageError
from leasehold.handlers.answers import Effects, Emit
from leasehold.handlers.calling.raised import RaisedElsewhere
from leasehold.handlers.contract import Delete, EntityEvent, Reject, Skip
from leasehold.sinks.rules.related import Gone, Row

_KIND = "$"
_READ: dict[str, Any] = {
    "bytes": lambda text: base64.b64decode(text),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "seconds": lambda parts: timedelta(*parts),
    "decimal": Decimal,
    "uuid": UUID,
}


def call_of(state: Mapping[str, Any] | None, event: EntityEvent) -> bytes:
    """A call, as bytes."""
    fields = [getattr(event, name) for name in EntityEvent.__slots__]
    return _said(packed([None if state is None else dict(state), fields]))


def read_call(data: bytes) -> tuple[dict[str, Any] | None, EntityEvent]:
    """What `call_of` has written."""
    state, fields = unpacked(json.loads(data))
    return state, EntityEvent(*fields)


def answer_of(answer: Effects) -> bytes:
    """An answer, as bytes, its state a dict. Raises `UsageError` that names what cannot cross."""
    effects = [_effect(one) for one in answer.effects]
    kind = next((one.__name__ for one in (Delete, Skip) if isinstance(answer.state, one)), "state")
    return _said([kind, packed(dict(answer.state)) if kind == "state" else None, packed(effects, "effects")])


def failure_of(error: Reject | RaisedElsewhere) -> bytes:
    """What was raised, as bytes."""
    if isinstance(error, Reject):
        return _said(["reject", error.reason])
    return _said(["raised", error.name, error.described, error.traced, error.after])


def read_answer(data: bytes) -> Effects:
    """What `answer_of` has written. Raises what `failure_of` has."""
    kind, *rest = unpacked(json.loads(data))
    if kind == "reject":
        raise Reject(*rest)
    if kind == "raised":
        raise RaisedElsewhere(*rest)
    state, effects = rest
    return Effects({"Delete": Delete(), "Skip": Skip()}.get(kind, state), [_read_effect(*one) for one in effects])


def packed(value: Any, path: str = "") -> Any:
    """A value in the form. Raises `UsageError` that says where what cannot cross is."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [packed(one, f"{path}[{place}]") for place, one in enumerate(value)]
    if isinstance(value, tuple):
        return {_KIND: "tuple", "v": [packed(one, f"{path}[{place}]") for place, one in enumerate(value)]}
    if isinstance(value, Mapping):
        pairs = [[packed(name, path), packed(one, f"{path}.{name}")] for name, one in value.items()]
        return {_KIND: "map", "v": pairs}
    if isinstance(value, bytes | bytearray | memoryview):
        return {_KIND: "bytes", "v": base64.b64encode(value).decode()}
    if isinstance(value, timedelta):
        return {_KIND: "seconds", "v": [value.days, value.seconds, value.microseconds]}
    if isinstance(value, datetime | date | time):
        kind = next(one for one in (datetime, date, time) if isinstance(value, one))
        return {_KIND: kind.__name__, "v": value.isoformat()}
    if isinstance(value, Decimal | UUID):
        return {_KIND: "decimal" if isinstance(value, Decimal) else "uuid", "v": str(value)}
    raise UsageError(
        f"{path.lstrip('.') or 'the value'} is a {type(value).__qualname__}, which cannot come out of the handler's "
        "process: with handler_timeout values are text, numbers, decimals, dates, times, bytes, lists and dicts"
    )


def unpacked(value: Any) -> Any:
    """What `packed` was given."""
    if isinstance(value, list):
        return [unpacked(one) for one in value]
    if not isinstance(value, dict):
        return value
    kind, held = value[_KIND], value["v"]
    if kind == "map":
        return {unpacked(name): unpacked(one) for name, one in held}
    if kind == "tuple":
        return tuple(unpacked(one) for one in held)
    return _READ[kind](held)


def _said(form: list[Any]) -> bytes:
    return json.dumps(form, separators=(",", ":")).encode()


def _effect(effect: Emit | Row | Gone) -> list[Any]:
    if isinstance(effect, Emit):
        return ["Emit", effect.body, effect.key, dict(effect.properties)]
    if isinstance(effect, Row):
        return ["Row", effect.table, dict(effect.values), list(effect.keys)]
    return ["Gone", effect.table, dict(effect.values)]


def _read_effect(kind: str, *parts: Any) -> Emit | Row | Gone:
    if kind == "Emit":
        return Emit(*parts)
    if kind == "Row":
        table, values, keys = parts
        return Row(table, values, keys=keys)
    return Gone(*parts)
