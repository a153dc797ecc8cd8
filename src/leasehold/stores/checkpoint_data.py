"""A user's own data with a checkpoint, and the enqueued time of its event: as one text, the same in every store.

Owns its form and its limit. It is a mapping from text to text, because that is what every layout keeps and gives back
as it was: a column, a line of a Redis value, a blob's metadata (printable ASCII in an HTTP header), a table's
property. Numbers would come back changed from one of them or another; whoever needs more than text puts JSON, or
base64, into a value. Written as compact JSON in ASCII, in the order given. Refuses more than `LARGEST` bytes of that:
a checkpoint is written again and again, and is no place for state, which belongs beside the rows under their fence.

The enqueued time is one entry more of that mapping, `leasehold.enqueued`, with the sequence number of its event: so no
layout changes, and where another program writes a checkpoint there is none, or one of another event, which is passed
over. No user's data has this name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace

from leasehold.errors import ConfigError
from leasehold.model import Checkpoint
from leasehold.printable import shortened

LARGEST = 1_024
"""Bytes of the JSON, in which a character outside of ASCII is six or twelve."""
ENQUEUED = "leasehold.enqueued"
"""The entry that says when the checkpoint's event was enqueued."""


def check_data(data: object) -> Mapping[str, str]:
    """The data, if every store can keep it. Raises `ConfigError`."""
    if not isinstance(data, Mapping) or not all(isinstance(text, str) for pair in data.items() for text in pair):
        raise ConfigError(
            "data",
            None,
            f"a mapping from text to text, and this is {_short(data)}",
            "Write other values as text, for example with json.dumps",
        )
    if ENQUEUED in data:
        raise ConfigError(
            "data", None, f"without an entry {ENQUEUED}, which is Leasehold's own", "Give it another name"
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


def data_text(checkpoint: Checkpoint) -> str | None:
    """The data and the enqueued time as stores keep them: None where there is neither."""
    entries = dict(check_data(checkpoint.data)) if checkpoint.data else {}
    if checkpoint.enqueued_time is not None and math.isfinite(checkpoint.enqueued_time):
        entries[ENQUEUED] = f"{checkpoint.sequence_number}@{checkpoint.enqueued_time!r}"
    return _json(entries) if entries else None


def with_data(checkpoint: Checkpoint, text: str | None) -> Checkpoint:
    """The checkpoint with what was written as that text. Raises `ValueError` for what nobody can have written."""
    if text is None:
        return checkpoint
    entries = dict(_entries(text))
    enqueued = _enqueued(entries.pop(ENQUEUED, ""), checkpoint.sequence_number)
    return replace(checkpoint, data=entries, enqueued_time=enqueued)


def _enqueued(text: str, sequence_number: int) -> float | None:
    """The time in an entry, if it is of this event."""
    number, _, seconds = text.partition("@")
    try:
        found = float(seconds)
    except ValueError:
        return None
    return found if number == str(sequence_number) and math.isfinite(found) else None


def _entries(text: str) -> Mapping[str, str]:
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
    return shortened(repr(value), 80)
