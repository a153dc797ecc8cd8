"""JSON bodies to rows, one at a time: every rule of the reader, and every reason of a reject.

Owns what a body must be: one JSON object as RFC 8259 has it, in UTF-8, also with a byte order mark before it, nested at
most `DEPTH` deep, without half a surrogate pair, whose fields fit the schema. This is the reader's definition;
`json_columns` is faster, reads only what it is sure of, and leaves the rest to this module.

Refused: a name that occurs twice in an object where the schema names the field, or where the rescue column would
keep it, since either choice would lose a value. In what is dropped, and in what a STRING keeps as it is written, a
name may occur twice.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa
from pyarrow import types

from leasehold.formats.json_values import AsWritten, Convert, Real, Verbatim, Whole, converter, misfit
from leasehold.formats.misfits import MORE_THAN_ONE, NO_BODY, NOT_AN_OBJECT, NOT_UTF8, Misfit, shown
from leasehold.formats.shapes import DEPTH

SPACE = " \t\n\r"
"""What may stand around a JSON value."""

MARK = "\ufeff"
"""The byte order mark, which may stand before a body: RFC 8259 lets a reader pass over it."""

_BLANKS = re.compile(r"[ \t\n\r]*")
_OPENINGS = ("{", "[", '"')  # of JSON: other bytes may begin with zeros too
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|([\[{])|([\]}])', re.DOTALL)
"""Strings, also one that does not end: what is in it is looked at once."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""What may be half a surrogate pair."""


class _Doubled(dict[str, Any]):
    """An object in which names occur twice, as its `pairs` show."""

    pairs: Sequence[tuple[str, Any]]

    def names(self) -> frozenset[str]:
        """Those that occur twice."""
        return frozenset(name for name, count in Counter(name for name, _ in self.pairs).items() if count > 1)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    doubled = _Doubled(made)
    doubled.pairs = pairs
    return doubled


def _constant(name: str) -> Any:
    raise _Unread(f"{NOT_AN_OBJECT}: it holds {name}, which is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=Whole, parse_float=Real, parse_constant=_constant)
Rescue = Callable[[Any], str | None]

_quoted = encode_basestring


class _Unread(Exception):
    """The body is not one JSON object; the text is the reason."""


class RowReader:
    """Reads bodies by a schema; `rescue` tells whether fields that it does not know are kept, `cut` is as there."""

    def __init__(self, schema: pa.Schema, *, rescue: bool, cut: bool = False) -> None:
        self._type = pa.struct(list(schema))
        self._names = schema.names
        self._unknown = _rescuer(self._type) if rescue else None
        self._convert = _converter(self._type, rescue, cut)
        self._nothing = [None] * len(self._names)

    def read(self, body: bytes | None) -> tuple[list[Any], str | None, str | None]:
        """The values of the columns, what the rescue column keeps, and the reason if the body is rejected."""
        try:
            text, value = _decode(body)
            unknown = self._unknown(value) if self._unknown else None
            try:
                row = self._convert(value)
            except AsWritten:
                value, _ = _located(text, 0, self._type)
                row = self._convert(value)
        except _Unread as error:
            return self._nothing, None, str(error)
        except Misfit as error:
            return self._nothing, None, error.reason
        return [row.get(name) for name in self._names], unknown, None


def members_of(body: bytes | None, names: Collection[str], verbatim: Collection[str]) -> dict[str, Any] | str:
    """The members of the object that a body is, as they are decoded; or why it is none that can be read.

    Objects and arrays that are called as one of `verbatim` are their texts. None of `names` may occur twice.
    """
    try:
        text, value = _decode(body)
        if type(value) is _Doubled:
            _refuse_doubled(value.names() & frozenset(names))
    except _Unread as error:
        return str(error)
    except Misfit as error:
        return error.reason
    if any(isinstance(value.get(name), dict | list) for name in verbatim):
        value, _ = _located(text, 0, pa.struct([(name, pa.string()) for name in verbatim]))
    return value


def _decode(body: bytes | None) -> tuple[str, dict[str, Any]]:
    """The body as text without blanks around it, and as the object that it is."""
    if body is None:
        raise _Unread(NO_BODY)
    try:
        text = body.decode().removeprefix(MARK).strip(SPACE)
    except UnicodeDecodeError:
        raise _Unread(_not_utf8(body) or NOT_UTF8) from None
    if text.count("[") + text.count("{") > DEPTH and _depth(text) > DEPTH:
        raise _Unread(f"the body is nested more than {DEPTH} deep")
    try:
        value, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        said = error.msg[:1].lower() + error.msg[1:]
        other = _not_utf8(body)
        raise _Unread(other or f"{NOT_AN_OBJECT}: {said} at character {error.pos + 1}") from None
    if not isinstance(value, dict):
        raise _Unread(f"{NOT_AN_OBJECT}: it is {shown(value)}")
    if end < len(text):
        what = MORE_THAN_ONE if text.endswith("}") else NOT_AN_OBJECT
        raise _Unread(f"{what}: the first ends at character {end}")
    if SURROGATE.search(text):
        _refuse_half_pairs(value)
    return text, value


def _not_utf8(body: bytes) -> str | None:
    """The reason for a body that is JSON in UTF-16 or UTF-32, which its mark tells or the zeros beside its brackets."""
    found = json.detect_encoding(body)
    if found.startswith("utf-8") or body.decode(found, "ignore").lstrip(SPACE + MARK)[:1] not in _OPENINGS:
        return None
    return f"{NOT_UTF8}: it is {found[:6].upper()}, so its sender has to encode it as UTF-8"


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


def _converter(type_: pa.DataType, rescue: bool, cut: bool) -> Convert:
    if types.is_struct(type_):
        fields = [(field.name, _converter(field.type, rescue, cut)) for field in type_]
        return partial(_struct, fields=fields, names=frozenset(name for name, _ in fields), rescue=rescue)
    if types.is_map(type_):
        return partial(_map, convert=_converter(type_.item_type, rescue, cut))
    if types.is_list(type_):
        return partial(_list, convert=_converter(type_.value_type, rescue, cut))
    return converter(type_, cut=cut)


def _struct(value: Any, fields: list[tuple[str, Convert]], names: frozenset[str], rescue: bool) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise misfit(value, "STRUCT")
    if type(value) is _Doubled:
        _refuse_doubled(value.names() if rescue else value.names() & names)
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
        _refuse_doubled(value.names())
    return [(name, None if inner is None else _within(name, convert, inner)) for name, inner in value.items()]


def _list(value: Any, convert: Convert) -> list[Any]:
    if not isinstance(value, list):
        raise misfit(value, "ARRAY")
    return [None if inner is None else _within(place, convert, inner) for place, inner in enumerate(value)]


def _refuse_doubled(names: frozenset[str]) -> None:
    if names:
        raise Misfit("occurs twice in one object").within(min(names))


def _rescuer(type_: pa.DataType) -> Rescue:
    """What gives the fields in a value that `type_` does not know, as JSON; None if there are none."""
    if types.is_struct(type_):
        known = {field.name: _rescuer(field.type) for field in type_}
        return lambda value: _rescued_object(value, known, compact) if isinstance(value, dict) else None
    if types.is_map(type_):
        inner = _rescuer(type_.item_type)
        return lambda value: _rescued_object(value, {}, inner) if isinstance(value, dict) else None
    if types.is_list(type_):
        inner = _rescuer(type_.value_type)
        return lambda value: _rescued_list(value, inner) if isinstance(value, list) else None
    return lambda value: None


def _rescued_object(value: dict[str, Any], rescues: dict[str, Rescue], other: Rescue) -> str | None:
    members = [(name, rescues.get(name, other)(inner)) for name, inner in value.items()]
    kept = [f"{_quoted(name)}:{text}" for name, text in members if text is not None]
    return f"{{{','.join(kept)}}}" if kept else None


def _rescued_list(value: list[Any], inner: Rescue) -> str | None:
    items = [inner(item) for item in value]
    return f"[{','.join([item or 'null' for item in items])}]" if any(items) else None


def compact(value: Any) -> str:
    """A decoded value as JSON without blanks, its numbers as they are written."""
    if isinstance(value, str):
        return _quoted(value) if type(value) is str else value
    if isinstance(value, dict):
        pairs = value.pairs if isinstance(value, _Doubled) else value.items()
        return f"{{{','.join([f'{_quoted(name)}:{compact(inner)}' for name, inner in pairs])}}}"
    if isinstance(value, list):
        return f"[{','.join([compact(inner) for inner in value])}]"
    return "null" if value is None else "true" if value else "false"


def _located(text: str, start: int, type_: pa.DataType) -> tuple[Any, int]:
    """The value at `start` of a text that is JSON, and where it ends.

    Unlike the decoder it keeps the text of objects and arrays where the type is STRING.
    """
    opening = text[start]
    if types.is_string(type_) and opening in "{[":
        _, end = _DECODER.raw_decode(text, start)
        return Verbatim(text[start:end]), end
    if types.is_list(type_) and opening == "[":
        return _located_list(text, start, type_.value_type)
    if opening == "{" and types.is_map(type_):
        return _located_object(text, start, {}, type_.item_type)
    if opening == "{" and types.is_struct(type_):
        return _located_object(text, start, {field.name: field.type for field in type_}, pa.null())
    return _DECODER.raw_decode(text, start)


def _located_list(text: str, start: int, item: pa.DataType) -> tuple[Any, int]:
    values: list[Any] = []
    place = _skip(text, start + 1)
    while text[place] != "]":
        value, end = _located(text, place, item)
        values.append(value)
        place = _next(text, end)
    return values, place + 1


def _located_object(text: str, start: int, types: dict[str, pa.DataType], other: pa.DataType) -> tuple[Any, int]:
    pairs: list[tuple[str, Any]] = []
    place = _skip(text, start + 1)
    while text[place] != "}":
        name, end = _DECODER.raw_decode(text, place)
        place = _skip(text, _skip(text, end) + 1)
        value, end = _located(text, place, types.get(name, other))
        pairs.append((name, value))
        place = _next(text, end)
    return _object(pairs), place + 1


def _skip(text: str, place: int) -> int:
    found = _BLANKS.match(text, place)
    return found.end() if found else place


def _next(text: str, place: int) -> int:
    """Where the next member begins, or the object or array ends."""
    place = _skip(text, place)
    return _skip(text, place + 1) if text[place] == "," else place
