"""Records as others wrote them: read one by one, and set aside where they cannot be read.

Owns what a record may say, for every store, and what becomes of one that says something else, or nothing that can be
understood. Whoever can write to a store can write anything: text in place of a number, a capacity of zero, bytes that
are no text, JSON ten thousand levels deep. Promises that reading raises nothing because of it, that such a record is
named in `OwnershipListing.unreadable` and nowhere else, and that the others are listed as ever. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from leasehold.errors import StoreError
from leasehold.model import (
    BEFORE_FIRST,
    HIGHEST,
    Ask,
    Checkpoint,
    ConsumerGroup,
    Ownership,
    OwnershipListing,
    Presence,
    RecordKind,
    Unreadable,
)
from leasehold.printable import shortened
from leasehold.stores.base import PipelineBinding
from leasehold.stores.names import LONGEST_NAME, legible

__all__ = ["checked", "listing", "read", "read_binding", "unreadable"]

MOST_FAILURES = 1_000_000
"""The most bad ends that are counted."""

_RAISED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading a record may raise that holds anything."""

_SHOWN = 120

R = TypeVar("R", Ownership, Presence, Ask, Checkpoint)
T = TypeVar("T")


def read(
    kind: RecordKind,
    group: ConsumerGroup,
    name: object,
    make: Callable[[T], R],
    raw: T,
    *,
    tag: Callable[[T], tuple[object, object]] | None = None,
) -> R | Unreadable:
    """The record that `make` makes of `raw`, checked; or what is to be known of one that cannot be read.

    It is of this `kind` and `group`, and `name` is its partition or owner. `tag` gives its ETag and when it was last
    written, which allow an ownership record that cannot be read to be replaced once it is old enough.
    """
    try:
        return checked(make(raw))
    except _RAISED as error:
        found = unreadable(kind, group, name, error)
    if tag is None:
        return found
    try:
        etag, modified = tag(raw)
        return replace(found, etag=_text("etag", etag), last_modified=_seconds("last_modified", modified))
    except _RAISED:
        return found


def unreadable(kind: RecordKind, group: ConsumerGroup, name: object, error: Exception) -> Unreadable:
    """A record that cannot be read: its `kind`, `group` and `name`, and the `error` of reading it.

    A name that is longer than any partition's or owner's is cut: it goes into logs.
    """
    shown = shortened(legible(name if isinstance(name, str) else repr(name)), LONGEST_NAME)
    return Unreadable(group, kind, shown, shortened(legible(str(error) or type(error).__name__), _SHOWN))


def listing(
    owned: Iterable[Ownership | Unreadable],
    as_of: float,
    present: Iterable[Presence | Unreadable] = (),
    asks: Iterable[Ask | Unreadable] = (),
) -> OwnershipListing:
    """A listing of what could be read of `owned`, `present` and `asks`, with what could not beside it.

    `as_of` is the store's own time at which they were read.
    """
    unreadable: list[Unreadable] = []

    def readable(records: Iterable[R | Unreadable]) -> tuple[R, ...]:
        good = []
        for one in records:
            if isinstance(one, Unreadable):
                unreadable.append(one)
            else:
                good.append(one)
        return tuple(good)

    return OwnershipListing(readable(owned), as_of, readable(present), readable(asks), tuple(unreadable))


def read_binding(
    where: str, group: ConsumerGroup, make: Callable[[T], tuple[object, object]], raw: T
) -> PipelineBinding:
    """The pipeline and table that `group` is tied to, as `make` makes them of `raw`.

    Raises `StoreError`, which names the place `where`, if that cannot be read: it may be another pipeline's.
    """
    try:
        pipeline, sink = make(raw)
        return PipelineBinding(_text("pipeline", pipeline), _text("sink", sink))
    except _RAISED as error:
        why = shortened(legible(str(error)), _SHOWN)
        raise StoreError(
            f"{where}: which pipeline {group} is tied to cannot be read ({why}). `leasehold reset` ties it anew"
        ) from error


def checked(record: R) -> R:
    """The `record`, if it says only what it may. Raises `ValueError`."""
    if isinstance(record, Ownership):
        return _ownership(record)
    if isinstance(record, Presence):
        _presence(record)
    elif isinstance(record, Ask):
        _text("partition", record.partition)
        _whole("owner_level", record.owner_level, 0)
        _text("asker", record.asker, empty=False)
    else:
        _text("partition", record.partition)
        _whole("sequence_number", record.sequence_number, BEFORE_FIRST)
        _whole("owner_level", record.owner_level, 0)
        if record.offset is not None:
            _text("offset", record.offset)
        for text in (text for pair in record.data.items() for text in pair):
            _text("data", text)
    return record


def _ownership(record: Ownership) -> Ownership:
    for name in ("partition", "owner_id", "nonce", "successor", "last_error"):
        _text(name, getattr(record, name))
    _whole("owner_level", record.owner_level, 0)
    _text("etag", record.etag)
    _seconds("last_modified", record.last_modified)
    _whole("claimed_at", record.claimed_at, BEFORE_FIRST)
    _whole("failures", record.failures, 0)
    return record if record.failures <= MOST_FAILURES else replace(record, failures=MOST_FAILURES)


def _presence(record: Presence) -> None:
    _text("owner_id", record.owner_id, empty=False)
    for name in ("pipeline", "strategy"):
        _text(name, getattr(record, name))
    if not (_number("capacity", record.capacity) > 0 and math.isfinite(record.capacity)):
        raise ValueError(f"capacity is a number above zero, and not {record.capacity!r}")
    if record.maximum is not None:
        _whole("maximum", record.maximum, 0)
    _seconds("created", record.created)
    _seconds("last_modified", record.last_modified)


def _text(field: str, value: object, *, empty: bool = True) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{field} is text, and not {_short(value)}")
    if not value.isascii():
        value.encode()  # raises where bytes that are no UTF-8 have been kept as half surrogate pairs
    if not (value or empty):
        raise ValueError(f"{field} is empty")
    return value


def _number(field: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{field} is a number, and not {_short(value)}")
    return float(value)


def _seconds(field: str, value: object) -> float:
    """A time. Infinitely long ago is one, and so is one that has yet to be brought back from the future."""
    seconds = _number(field, value)
    if math.isnan(seconds):
        raise ValueError(f"{field} is a time, and not {_short(value)}")
    return seconds


def _whole(field: str, value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= HIGHEST:
        raise ValueError(f"{field} is a whole number from {least}, and not {_short(value)}")
    return value


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) > HIGHEST:
        return "one that is too large"  # its digits may be more than Python writes
    return shortened(repr(value), _SHOWN)
