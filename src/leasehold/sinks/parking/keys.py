"""Keys of entities as text, by which parked events are kept. Owns the form, which is the same in every database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from leasehold.sinks.forgetting import candidates
from leasehold.sinks.parking import Key
from leasehold.sinks.table import TableSpec, ordered_keys


def text_of(spec: TableSpec, key: Key) -> str:
    """A key as it is kept: a JSON list, in one order however the spec writes its columns."""
    values: dict[str, Any] = dict(zip(spec.keys, key, strict=True))
    return json.dumps([values[name] for name in ordered_keys(spec)])


def key_of(spec: TableSpec, text: str) -> Key:
    """The key that `text_of` has written."""
    values = dict(zip(ordered_keys(spec), json.loads(text), strict=True))
    return tuple(values[name] for name in spec.keys)


def texts_of(spec: TableSpec, key: Mapping[str, str]) -> Iterator[str]:
    """What `text_of` may have written for a key that a person states as text."""
    for values in product(*(candidates(key[name]) for name in ordered_keys(spec))):
        yield json.dumps(values)
