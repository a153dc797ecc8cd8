"""Which rows of events that are tried again may be written: the rules of `set_aside`, without a database.

Owns the choice of events and rows, and what is left behind of an event that was tried again. A sink looks up what is
rejected and how far it has come, asks here, writes what is admitted, and asks here what stays rejected. Does no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from leasehold.sinks.rules.again import EventId
from leasehold.sinks.rules.batch import Arrangement, Kept
from leasehold.sinks.rules.content import Content
from leasehold.sinks.rules.fence import Lane, Watermark
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.transactions import Found


@dataclass(frozen=True, slots=True)
class Choice:
    """What is tried of the events. `places` has the original place of each kept row of a table without keys."""

    kept: Kept
    tried: frozenset[EventId]
    made: Mapping[EventId, int]
    places: Mapping[EventId, Sequence[int]]
    left: int
    filtered: int
    unread: int
    gone: int


def choose(
    arrangement: Arrangement,
    parsed: int,
    events: Collection[EventId],
    rejected_rows: Found,
    marks: Mapping[Lane, Watermark],
    *,
    append: bool,
) -> Choice:
    """Rules 1, 3 and 7. `parsed` is how many of the rows of the batch could be read and computed."""
    rows = _rows_by_event(arrangement)
    source = arrangement.source.to_pylist()
    made = {event: sum(source[at] < parsed for at in rows.get(event, ())) for event in events}
    wanted: list[tuple[int, EventId]] = []
    tried: set[EventId] = set()
    places: dict[EventId, Sequence[int]] = {}
    counts: Counter[str] = Counter()
    for event in sorted(set(events)):
        there = rejected_rows.get(event)
        mark = marks.get((event.hub, event.partition))
        if not there:
            counts["gone"] += 1
            continue
        if mark is None or event.sequence_number > mark.sequence_number:
            counts["unread"] += 1
            continue
        its = rows.get(event, [])
        if append and its and all(row.source is None for row in there):
            missing = [row.place for row in there]
            if max(missing) >= made[event] or made[event] < len(its):
                counts["left"] += len(there)
                continue
            places[event] = missing
            its = [its[place] for place in missing]
        counts["filtered"] += not its
        tried.add(event)
        wanted += [(at, event) for at in its]
    wanted.sort()
    kept = Kept(
        arrangement.source.take(pa.array([at for at, _ in wanted], pa.int64())),
        [(event.hub, event.partition) for _, event in wanted],
        [event.sequence_number for _, event in wanted],
        len({event for _, event in wanted}),
        0,
    )
    return Choice(
        kept, frozenset(tried), made, places, counts["left"], counts["filtered"], counts["unread"], counts["gone"]
    )


FORGOTTEN = "what is known of its key may have been cleared, so nobody can say whether a later event has been applied"


def without_doubtful(content: Content, keys: Collection[Key], cleared: Mapping[Lane, int]) -> Content:
    """Rule 2, where memories are cleared (`forgetting`): a row of a key that is not known, at or below the place up to
    which memories were cleared, cannot be judged. It stays rejected."""
    rows = content.rows
    doubtful = {
        index
        for index, (key, lane, number) in enumerate(zip(rows.keys, rows.lanes, rows.numbers, strict=True))
        if number <= cleared.get(lane, -1) and key not in keys
    }
    if not doubtful:
        return content
    left = [index for index in range(len(rows)) if index not in doubtful]
    values = content.order_values
    return replace(
        content,
        rows=rows.some(left),
        places=[content.places[index] for index in left],
        order_values=None if values is None else [values[index] for index in left],
        unfit={**content.unfit, **{content.places[index]: FORGOTTEN for index in doubtful}},
    )


def left_behind(choice: Choice, rejected_rows: Found, rejected: Sequence[Rejected], *, append: bool) -> list[Rejected]:
    """Rule 5: what stays rejected of the events that were tried, where `rejected` are the rows that failed again."""
    by_event: dict[EventId, list[Rejected]] = {}
    for row in rejected:
        by_event.setdefault(EventId(row.hub, row.partition, row.sequence_number), []).append(row)
    left: list[Rejected] = []
    for event, rows in by_event.items():
        whole = [row for row in rejected_rows[event] if row.source is not None]
        if whole and not (append and choice.made[event]):
            first = whole[0]
            its = (event.hub, event.partition, event.sequence_number)
            left.append(Rejected(*its, first.place, first.body, rows[0].reason, first.source))
        elif event in choice.places:
            left += [row._replace(place=choice.places[event][row.place]) for row in rows]
        else:
            left += rows
    return left


def _rows_by_event(arrangement: Arrangement) -> dict[EventId, list[int]]:
    """Where the rows of each event are, in their order."""
    rows: dict[EventId, list[int]] = {}
    for stretch in arrangement.stretches:
        for at in range(stretch.begin, stretch.end):
            rows.setdefault(EventId(*stretch.range.lane, arrangement.numbers[at]), []).append(at)
    return rows
