"""A user's own data with a checkpoint: as one text, the same in every store.

Owns its form and its limit. It is a mapping from text to text, because that is what every layout keeps and gives back
as it was: a column, a line of a Redis value, a blob's metadata (printable ASCII in an HTTP header), a table's
property. Numbers would come back changed from one of them or another; whoever needs more than text puts JSON, or
base64, into a value. Written as compact JSON in ASCII, in the order given. Refuses more than `LARGEST` bytes of that:
a checkpoint is written again and again, and is no place for state, which belongs beside the rows under their fence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from leasehold.errors import ConfigError

LARGEST = 1_024
"""Bytes of the JSON, in which a character outside of ASCII is six or twelve."""


def check_data(data: object) -> Mapping[str, str]:
    """The data, if every store can keep it. Raises `ConfigError`."""
    if not isinstance(data, Mapping) or not all(isinstance(text, str) for pair in data.items() for text in pair):
        raise ConfigError(
            "data",
            None,
            f"a mapping from text to text, and this is {_short(data)}",
            "Write other values as text, for example with json.dumps",
        )
    written = _json(data)
    if len(written) > LARGEST:
        raise ConfigError(
            "data",
            None,
            f"at most {LARGEST:,} bytes as JSON, and this is {len(written):,}",
            "Keep state beside the rows that belong to it, and only what finds it here",
        )
    return data


def data_text(data: Mapping[str, str]) -> str | None:
    """The data as stores keep it: None where there is none."""
    return _json(check_data(data)) if data else None


def data_of(text: str | None) -> Mapping[str, str]:
    """What was written as that text. Raises `ValueError` for what nobody can have written."""
    if text is None:
        return {}
    if len(text) > 2 * LARGEST:
        raise ValueError(f"data of {len(text):,} characters")
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("data that is nested too deeply") from None
    if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
        raise ValueError("data is a JSON object of texts")
    return data


def _json(data: Mapping[str, str]) -> str:
    return json.dumps(dict(data), separators=(",", ":"))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
