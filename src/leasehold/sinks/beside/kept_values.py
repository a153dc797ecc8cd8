"""Single values as a database has them, in which others than Leasehold may write: each as the nearest that can be.

Reading raises nothing. A time before 1970 or without end, a count below zero, an error that is no text become what is
nearest to them. Pure.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

MOST_DELIVERIES = 1_000_000
"""The most calls of a handler that are believed: a higher count is read as this."""

_FOREVER = 1e12  # seconds, beyond all calendars


def seconds(value: object) -> float:
    """A time since 1970; 0 where it says nothing."""
    known = isinstance(value, int | float) and not math.isnan(value)
    return min(max(float(value), 0.0), _FOREVER) if known else 0.0  # type: ignore[arg-type]


def count(value: object) -> int:
    """How often a handler was called."""
    return min(max(value, 0), MOST_DELIVERIES) if isinstance(value, int) else 0


def as_bytes(value: object) -> bytes:
    """A body."""
    return value if isinstance(value, bytes) else as_text(value).encode("utf-8", "replace")


def kept_body(body: object) -> tuple[bytes | None, bool]:
    """The body of a rejected row for a column of bytes, and whether it is text: a text may have a NUL, which some
    databases hold in no text. `set_aside.rejected.row_of` is the way back."""
    if body is None or isinstance(body, bytes):
        return body, False
    return str(body).encode("utf-8", "replace"), True


def as_text(value: object) -> str:
    """What a handler raised."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else "" if value is None else str(value)


def time_text(time: float) -> str:
    """A time as it is kept beside a table: text that sorts by time."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
