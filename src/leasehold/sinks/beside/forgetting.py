"""What a sink keeps beside its table, and for how long: forgetting an entity, and clearing what is old.

Owns the rules of `KeepsNotes.forget_entity` and `clear`, and their values. Does no I/O.

1. Nothing is cleared unless a retention says so. What is cleared is gone for good, some at a time.
2. A rejected row, and the note of one that was dropped, is old once it was set aside, or dropped, longer ago than its
   retention.
3. The memory of a key is old once the event that wrote the key last was applied longer ago than its retention; that of
   a deleted entity (a tombstone) has a retention of its own. There is no time beside each key: now and then the place
   of each partition is noted with the time, and what lies at or below a place that was noted that long ago is old. A
   person's reset makes these notes void, since events are applied anew. A note of a time that has not come yet is of
   a clock that went wrong since; a step removes it.
4. Without its memory a key is like a new one: an older event that comes after that counts, unless the row does
   (`remembered_order`, rule 6), and so does one from another partition. An event that is tried again (`set_aside`) is
   not let in where the memory of its key may have been cleared.
5. An entity that is forgotten leaves no memory and no rejected row in which its key can be read: a body, or a row, that
   is a JSON object with the key's columns; and no parked event. Its row in the table is somebody else's to delete, and
   stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from leasehold.config import check_number
from leasehold.errors import ConfigError
from leasehold.sinks.rules.table_spec import TableSpec, check_utf8, folded, ordered_keys
from leasehold.sinks.set_aside import RejectedRow

__all__ = ["Cleared", "Forgotten", "Retention"]

AT_A_TIME = 1000
"""Rows that a step looks at."""
_NOTES = 20
"""Places that are noted in the time of a retention."""


@dataclass(frozen=True, slots=True)
class Retention:
    """For how many seconds what is kept beside the table is kept; None: for ever.

    rejected    rejected rows, and the notes of dropped ones
    memories    what is known of keys
    tombstones  what is known of the keys of deleted entities; `memories`, if that is shorter
    """

    rejected: float | None = None
    memories: float | None = None
    tombstones: float | None = None

    def __post_init__(self) -> None:
        for name in ("rejected", "memories", "tombstones"):
            if (value := getattr(self, name)) is not None:
                key = {"memories": "memory", "tombstones": "tombstone"}.get(name, name)
                check_number(f"{key}_retention", value, above=0, rule="a time above zero", remedy='For example "30d"')

    @property
    def of_tombstones(self) -> float | None:
        """The shorter of both that tombstones have."""
        both = [each for each in (self.memories, self.tombstones) if each is not None]
        return min(both, default=None)

    @property
    def longest_of_keys(self) -> float | None:
        """For how long notes of places are needed."""
        both = [each for each in (self.memories, self.tombstones) if each is not None]
        return max(both, default=None)

    @property
    def note_every(self) -> float | None:
        """Seconds between two notes of places, None if none are needed."""
        return None if self.of_tombstones is None else self.of_tombstones / _NOTES

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.rejected, self.memories, self.tombstones))


@dataclass(frozen=True, slots=True)
class Cleared:
    """What a step has cleared. `after` is where the next one goes on among keys, None: at the first.

    `more` says that there is more to clear now.
    """

    rejected: int = 0
    memories: int = 0
    after: tuple[object, ...] | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was there of an entity; parked events, and those in the outbox, count as rejected."""

    memories: int = 0
    rejected: int = 0


def parse_key(spec: TableSpec, stated: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a key of the table; `VALUE` alone does for a single key column. Raises `ConfigError`."""
    names = {folded(name): name for name in ordered_keys(spec)}
    remedy = f"Give --key {' --key '.join(f'{name}=VALUE' for name in names.values())}"
    if not names:
        raise ConfigError("--key", None, f"the table {spec.called} has no keys, so nothing is known of any", "Leave it")
    key: dict[str, str] = {}
    for text in stated:
        check_utf8("--key", text)
        name, equals, value = text.partition("=")
        if equals and folded(name) in names:
            name = names[folded(name)]
        elif len(names) == 1:
            (name,), value = names.values(), text
        else:
            raise ConfigError("--key", text, f"the keys of {spec.called} are {', '.join(names.values())}", remedy)
        if name in key:
            raise ConfigError("--key", text, f"{name} is given twice", remedy)
        key[name] = value
    if missing := [name for name in names.values() if name not in key]:
        raise ConfigError("--key", None, f"{', '.join(missing)} is missing", remedy)
    return key


def is_of(row: RejectedRow, key: Mapping[str, str]) -> bool:
    """Whether the key can be read in a rejected row: rule 5. What others wrote is read, or it is not.

    Numbers are what is written: 1.10 is not 1.1, as in a key of text. Of a name that occurs twice each value counts.
    """
    if not isinstance(row.body, str | bytes):
        return False
    try:
        value = _read(row.body.encode() if isinstance(row.body, str) else row.body)  # also behind a mark
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, tuple):
        return False
    return all(
        any(folded(given) == folded(name) and _is(each, wanted) for given, each in value)
        for name, wanted in key.items()
    )


def candidates(text: str) -> list[object]:
    """What a value of this text may be in a database: text, or a number of at most 64 bits."""
    found: list[object] = [text]
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if kind is float or abs(number) < 2**63:
            found.append(number)
    return found


_read = partial(json.loads, object_pairs_hook=tuple, parse_int=str, parse_float=str, parse_constant=str)
"""JSON with its digits: an object becomes a tuple of names and values, a number its text."""


def _is(value: object, text: str) -> bool:
    if isinstance(value, str):
        return value == text
    try:
        return bool(_read(text) == value)
    except (ValueError, RecursionError):
        return False
