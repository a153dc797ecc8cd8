"""What the page shows of a pipeline, as JSON: PURE.

Owns the shape of that JSON, the colours of owners, and the rates. A colour is a number from 0 to 7; the page has a
light and a dark shade of each, and always says the name beside it. An instance keeps its colour as long as it is shown,
and instances that are there at once have different ones, as far as there are enough.

Everything that others wrote (owner ids, errors, bodies) is text here, made printable and cut; the page puts it in as
text and never as markup.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leasehold.operations.lag_times import GroupTimes, PartitionTimes
from leasehold.operations.moves import Move
from leasehold.operations.progress import GroupProgress, PartitionProgress
from leasehold.printable import LONGEST, excerpt, printable_lines
from leasehold.sinks.set_aside import SetAsideCounts


@dataclass(frozen=True, slots=True)
class ShownRejected:
    """A row that was set aside, as it is shown: `body` is text, `hub` the identity of its hub.

    `traceback` is the one of its handler, where it is a dead letter.
    """

    partition: str
    sequence_number: int
    reason: str
    body: str
    at: str
    hub: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class ShownParked:
    """An event that waits, as it is shown: times in seconds since 1970, `next_at` None behind another of its entity."""

    partition: str
    sequence_number: int
    key: str
    error: str
    body: str
    tries: int
    parked_at: float
    next_at: float | None
    hub: str = ""


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """How a partition is getting on, in a word, and why."""

    word: str
    why: str


@dataclass(frozen=True, slots=True)
class PipelineLook:
    """One look, `at` seconds since the epoch. `aside` is how much is set aside, None where nobody can tell; `rows` and
    `parked` are the first of it.

    An owner that has not renewed for `expiration` seconds counts as gone. `error` says why nothing newer is known, `""`
    while all is well.
    """

    at: float
    progress: GroupProgress | None = None
    times: GroupTimes | None = None
    aside: SetAsideCounts | None = None
    rows: Sequence[ShownRejected] = ()
    parked: Sequence[ShownParked] = ()
    verdicts: Mapping[str, PartitionVerdict] = field(default_factory=dict)
    error: str = ""
    expiration: float = math.inf


def rates(before: PipelineLook | None, now: PipelineLook, seconds: float) -> tuple[dict[str, float], float]:
    """Events a second since an earlier look, `seconds` ago: done, by partition, and sent, in all. Never below 0."""
    if before is None or before.progress is None or now.progress is None or seconds <= 0:
        return {}, 0.0
    rows = {row.partition: row for row in before.progress.partitions}
    pairs = [(rows[row.partition], row) for row in now.progress.partitions if row.partition in rows]
    done = {new.partition: max(0, (new.checkpoint or 0) - (old.checkpoint or 0)) / seconds for old, new in pairs}
    return done, sum(max(0, new.end - old.end) for old, new in pairs) / seconds


def view(
    name: str,
    seen: PipelineLook,
    *,
    palette: Mapping[str, int],
    before: PipelineLook | None = None,
    seconds: float = 0.0,
    history: Sequence[Move] = (),
) -> dict[str, Any]:
    """A pipeline as the page shows it. `history` are its moves, latest first, `palette` the colours of its owners.

    `before` is a look that was made this many `seconds` earlier, for rates. They do not come from the two times of day:
    these jump where a clock is set.
    """
    if seen.progress is None:
        return {"name": name, "at": seen.at, "error": excerpt(seen.error), "partitions": [], "moves": _moves(history)}
    done, sent = rates(before, seen, seconds)
    rows = seen.progress.partitions
    times: Mapping[str, PartitionTimes] = {}
    if seen.times is not None:
        times = {one.partition: one for one in seen.times.partitions}
    lags = {row.partition: times[row.partition].unread if row.partition in times else row.lag for row in rows}
    return {
        "name": name,
        "at": seen.at,
        "error": excerpt(seen.error),
        "lag": sum(lags.values()),
        "lagSeconds": None if seen.times is None else _finite(seen.times.lag),
        "secondsLeft": None if seen.times is None else _finite(seen.times.left),
        "done": round(sum(done.values()), 1),
        "sent": round(sent, 1),
        "owned": sum(1 for row in rows if row.alive),
        "unserved": [excerpt(one) for one in seen.progress.unserved],
        "instances": [
            {"owner": excerpt(one.owner_id), "partitions": one.partitions, "colour": palette.get(one.owner_id, 0)}
            for one in seen.progress.instances
        ],
        "partitions": [
            _partition(row, lags[row.partition], times.get(row.partition), done.get(row.partition, 0.0), palette)
            | _verdict(seen.verdicts.get(row.partition))
            for row in rows
        ],
        **_aside(seen),
        "moves": _moves(history),
        "colours": {excerpt(owner): colour for owner, colour in palette.items()},
    }


def _aside(seen: PipelineLook) -> dict[str, Any]:
    counts = seen.aside
    return {
        "rejected": counts and counts.rejected,
        "deadLetters": counts and counts.dead_letters,
        "parked": counts and counts.parked,
        "oldestParked": counts and counts.oldest_parked,
        "nextRetry": counts and counts.next_retry,
        "rejectedRows": [
            {
                "partition": excerpt(one.partition),
                "number": one.sequence_number,
                "reason": excerpt(one.reason),
                "body": excerpt(one.body),
                "at": excerpt(one.at),
                "hub": excerpt(one.hub),
                "traceback": lines(one.traceback),
            }
            for one in seen.rows
        ],
        "parkedEvents": [
            {
                "partition": excerpt(one.partition),
                "number": one.sequence_number,
                "key": excerpt(one.key),
                "reason": excerpt(one.error),
                "body": excerpt(one.body),
                "tries": one.tries,
                "parkedAt": one.parked_at,
                "next": one.next_at,
                "hub": excerpt(one.hub),
            }
            for one in seen.parked
        ],
    }


def _partition(
    row: PartitionProgress, lag: int, times: PartitionTimes | None, done: float, palette: Mapping[str, int]
) -> dict[str, Any]:
    kept = max(0, row.end - row.begin)
    return {
        "partition": excerpt(row.partition),
        "owner": excerpt(row.owner),
        "colour": palette.get(row.owner, 0) if row.owner else None,
        "alive": row.alive,
        "level": row.owner_level,
        "age": _finite(row.age),
        "checkpoint": row.checkpoint,
        "begin": row.begin,
        "end": row.end,
        "lag": lag,
        "lagSeconds": None if times is None else _finite(times.lag),
        "secondsLeft": None if times is None else _finite(times.left),
        "share": 1.0 if not kept else round(min(1.0, max(0.0, 1 - lag / kept)), 4),
        "done": round(done, 1),
        "askedBy": excerpt(row.asked_by),
        "failures": row.failures,
        "suspect": row.suspect,
        "lastError": excerpt(row.last_error),
        "unreadable": excerpt(row.unreadable),
        "heldBack": 0 if times is None else times.held_back,
    }


def _verdict(verdict: PartitionVerdict | None) -> dict[str, str]:
    return {} if verdict is None else {"verdict": excerpt(verdict.word), "why": excerpt(verdict.why)}


def _moves(history: Sequence[Move]) -> list[dict[str, Any]]:
    return [
        {
            "at": one.at,
            "kind": one.kind.value,
            "partition": excerpt(one.partition),
            "owner": excerpt(one.owner),
            "before": excerpt(one.before),
            "reason": excerpt(one.reason),
        }
        for one in history
    ]


def body_text(body: object) -> str:
    """A body as text for people: bytes that are no text as hexadecimal digits, anything else as JSON."""
    if isinstance(body, bytes | bytearray | memoryview):
        raw = bytes(body)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return f"0x{raw[: LONGEST // 2].hex()}"
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, default=str)


def lines(value: str) -> str:
    """Text of others that has lines; its last part where it is too long: there stands what was raised."""
    return printable_lines(value if len(value) <= LONGEST else f"…{value[-LONGEST:]}")


def _finite(seconds: float | None) -> float | None:
    return seconds if seconds is None or math.isfinite(seconds) else None
