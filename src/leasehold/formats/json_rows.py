"""JSON bodies to rows, one at a time: every rule of the reader, and every reason of a reject.

Owns what a body must be: one JSON object as RFC 8259 has it, in UTF-8, nested at most `DEPTH` deep, without half a
surrogate pair, whose fields fit the schema. This is the reader's definition; `json_columns` is faster, reads only
what it is sure of, and leaves the rest to this module.

Refused: a name that occurs twice in an object where the schema names the field, or where the rescue column would
keep it, since either choice would lose a value. In what is dropped, and in what a STRING keeps as it is written, a
name may occur twice.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import types

from leasehold.formats.json_values import AsWritten, Convert, Real, Verbatim, Whole, converter, misfit
from leasehold.formats.misfits import MORE_THAN_ONE, NO_BODY, NOT_AN_OBJECT, NOT_UTF8, Misfit, shown

DEPTH = 200
"""How many objects and arrays may be open at one place of a body."""

SPACE = " \t\n\r"
"""What may stand around a JSON value."""

_BLANKS = re.compile(r"[ \t\n\r]*")
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _Doubled(dict[str, Any]):
    """An object in which `names` occur twice."""

    names: frozenset[str]


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    doubled = _Doubled(made)
    doubled.names = frozenset(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    return doubled


def _constant(name: str) -> Any:
    raise _Unread(f"{NOT_AN_OBJECT}: it holds {name}, which is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=Whole, parse_float=Real, parse_constant=_constant)


class _Unread(Exception):
    """The body is not one JSON object; the text is the reason."""


class RowReader:
    """Reads bodies by a schema; `rescue` tells whether fields that it does not know are kept."""

    def __init__(self, schema: pa.Schema, *, rescue: bool) -> None:
        self._type = pa.struct(list(schema))
        self._names = schema.names
        self._convert = _converter(self._type, rescue)
        self._nothing = [None] * len(self._names)

    def read(self, body: bytes | None) -> tuple[list[Any], str | None, str | None]:
        """The values of the columns, what the rescue column keeps, and the reason if the body is rejected."""
        try:
            text, value = _decode(body)
            unknown = None
            try:
                row = self._convert(value)
            except AsWritten:
                value, _, unknown = _located(text, 0, self._type)
                row = self._convert(value)
        except _Unread as error:
            return self._nothing, None, str(error)
        except Misfit as error:
            return self._nothing, None, error.reason
        return [row.get(name) for name in self._names], unknown, None


def _decode(body: bytes | None) -> tuple[str, dict[str, Any]]:
    """The body as text without blanks around it, and as the object that it is."""
    if body is None:
        raise _Unread(NO_BODY)
    try:
        text = body.decode().strip(SPACE)
    except UnicodeDecodeError:
        raise _Unread(NOT_UTF8) from None
    if text.count("[") + text.count("{") > DEPTH and _depth(text) > DEPTH:
        raise _Unread(f"the body is nested more than {DEPTH} deep")
    try:
        value, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        said = error.msg[:1].lower() + error.msg[1:]
        raise _Unread(f"{NOT_AN_OBJECT}: {said} at character {error.pos + 1}") from None
    if not isinstance(value, dict):
        raise _Unread(f"{NOT_AN_OBJECT}: it is {shown(value)}")
    if end < len(text):
        what = MORE_THAN_ONE if text.endswith("}") else NOT_AN_OBJECT
        raise _Unread(f"{what}: the first ends at character {end}")
    if _SURROGATE.search(text):
        _refuse_half_pairs(value)
    return text, value


def _depth(text: str) -> int:
    depth = deepest = 0
    for token in _NESTING.finditer(text):
        depth += bool(token[1]) - bool(token[2])
        deepest = max(deepest, depth)
    return deepest


def _refuse_half_pairs(value: Any) -> None:
    if type(value) is str:
        if not _is_text(value):
            raise Misfit("holds half a surrogate pair, which is not a character")
    elif isinstance(value, dict):
        for name, inner in value.items():
            if not _is_text(name):
                raise Misfit("holds half a surrogate pair in a field's name, which is not a character")
            _within(name, _refuse_half_pairs, inner)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            _within(position, _refuse_half_pairs, inner)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _within(step: str | int, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except Misfit as error:
        raise error.within(step) from None


def _converter(type_: pa.DataType, rescue: bool) -> Convert:
    if types.is_struct(type_):
        fields = [(field.name, _converter(field.type, rescue)) for field in type_]
        return partial(_struct, fields=fields, known=frozenset(name for name, _ in fields), rescue=rescue)
    if types.is_map(type_):
        return partial(_map, convert=_converter(type_.item_type, rescue))
    if types.is_list(type_):
        return partial(_list, convert=_converter(type_.value_type, rescue))
    return converter(type_)


def _struct(value: Any, fields: list[tuple[str, Convert]], known: frozenset[str], rescue: bool) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise misfit(value, "STRUCT")
    if type(value) is _Doubled:
        _refuse_doubled(value.names if rescue else value.names & known)
    if rescue and not value.keys() <= known:
        raise AsWritten
    row = {}
    for name, convert in fields:
        inner = value.get(name)
        if inner is not None:
            try:
                row[name] = convert(inner)
            except Misfit as error:
                raise error.within(name) from None
    return row


def _map(value: Any, convert: Convert) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise misfit(value, "MAP")
    if type(value) is _Doubled:
        _refuse_doubled(value.names)
    return [(name, None if inner is None else _within(name, convert, inner)) for name, inner in value.items()]


def _list(value: Any, convert: Convert) -> list[Any]:
    if not isinstance(value, list):
        raise misfit(value, "ARRAY")
    return [None if inner is None else _within(place, convert, inner) for place, inner in enumerate(value)]


def _refuse_doubled(names: frozenset[str]) -> None:
    if names:
        raise Misfit("occurs twice in one object").within(min(names))


def _located(text: str, start: int, type_: pa.DataType) -> tuple[Any, int, str | None]:
    """The value at `start` of a text that is JSON, where it ends, and the fields in it that `type_` does not know.

    Unlike the decoder it keeps the text of objects and arrays where the type is STRING. An object has the names
    that its type knows; names that occur twice are told of as the decoder does it.
    """
    opening = text[start]
    if types.is_string(type_) and opening in "{[":
        _, end = _DECODER.raw_decode(text, start)
        return Verbatim(text[start:end]), end, None
    if types.is_list(type_) and opening == "[":
        return _located_list(text, start, type_.value_type)
    if opening == "{" and types.is_map(type_):
        return _located_object(text, start, None, type_.item_type)
    if opening == "{" and types.is_struct(type_):
        return _located_object(text, start, {field.name: field.type for field in type_}, None)
    value, end = _DECODER.raw_decode(text, start)
    return value, end, None


def _located_list(text: str, start: int, item: pa.DataType) -> tuple[Any, int, str | None]:
    values: list[Any] = []
    kept: list[str | None] = []
    place = _skip(text, start + 1)
    while text[place] != "]":
        value, place, unknown = _located(text, place, item)
        values.append(value)
        kept.append(unknown)
        place = _next(text, place)
    return values, place + 1, f"[{','.join(each or 'null' for each in kept)}]" if any(kept) else None


def _located_object(
    text: str, start: int, known: dict[str, pa.DataType] | None, item: pa.DataType | None
) -> tuple[Any, int, str | None]:
    pairs: list[tuple[str, Any]] = []
    unknown_names: list[tuple[str, Any]] = []
    kept: list[str] = []
    place = _skip(text, start + 1)
    while text[place] != "}":
        name, end = _DECODER.raw_decode(text, place)
        written = text[place:end]
        place = _skip(text, _skip(text, end) + 1)
        type_ = item if known is None else known.get(name)
        if type_ is None:
            _, end = _DECODER.raw_decode(text, place)
            unknown_names.append((name, None))
            kept.append(f"{written}:{text[place:end]}")
        else:
            value, end, unknown = _located(text, place, type_)
            pairs.append((name, value))
            if unknown is not None:
                kept.append(f"{written}:{unknown}")
        place = _next(text, end)
    made = _object(pairs)
    doubled = _object(unknown_names)
    if type(doubled) is _Doubled:
        names = made.names if type(made) is _Doubled else frozenset()
        made = _Doubled(made)
        made.names = names | doubled.names
    return made, place + 1, "{" + ",".join(kept) + "}" if kept else None


def _skip(text: str, place: int) -> int:
    found = _BLANKS.match(text, place)
    return found.end() if found else place


def _next(text: str, place: int) -> int:
    """Where the next member begins, or the object or array ends."""
    place = _skip(text, place)
    return _skip(text, place + 1) if text[place] == "," else place
