"""Keys of entities as text, by which parked events are kept. Owns the form, which is the same in every database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from leasehold.sinks.beside.forgetting import candidates
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.table_spec import TableSpec, ordered_keys


def text_of(spec: TableSpec, key: Key) -> str:
    """A key as it is kept: a JSON list, in one order however the spec writes its columns."""
    if len(key) == len(spec.keys) == 1:  # of most tables, for each event: a list takes `json` four times as long
        return f"[{json.dumps(key[0])}]"
    values: dict[str, Any] = dict(zip(spec.keys, key, strict=True))
    return json.dumps([values[name] for name in ordered_keys(spec)])


def key_of(spec: TableSpec, text: object) -> Key:
    """The key that `text_of` has written, or its UTF-8. Raises `ValueError` for what it never writes."""
    try:
        said = text.decode() if isinstance(text, bytes) else text
        found = json.loads(said) if isinstance(said, str) else None
    except (ValueError, RecursionError):
        found = None
    names = ordered_keys(spec)
    if not isinstance(found, list) or len(found) != len(names):
        raise ValueError(f"it is no JSON list of {len(names)}")
    if not all(isinstance(value, str | int) and not isinstance(value, bool) for value in found):
        raise ValueError("a key is text or a whole number")
    values = dict(zip(names, found, strict=True))
    key = tuple(values[name] for name in spec.keys)
    if text_of(spec, key) != said:
        raise ValueError("it is written as no key is")
    return key


def texts_of(spec: TableSpec, key: Mapping[str, str]) -> Iterator[str]:
    """What `text_of` may have written for a key that a person states as text."""
    for values in product(*(candidates(key[name]) for name in ordered_keys(spec))):
        yield json.dumps(values)
