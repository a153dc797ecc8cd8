"""The staged rows of a batch as the driver merges them: from `leasehold_staged` into the temporary staging table.

Owns the order of rows that came from several tasks (`batch`: by hub, partition, owner level, sequence number; rows of
one event by task and place, those that could not be parsed behind the others), and the check that they are those of the
receipts. Runs in the transaction of the batch. Nothing of the rows passes through the driver, but those set aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leasehold.sinks.postgres.bookkeeping import Bookkeeping
from leasehold.sinks.postgres.layout import Layout
from leasehold.sinks.postgres.names import STAGED
from leasehold.sinks.postgres.session import Session
from leasehold.sinks.postgres.staged.cells import body_from
from leasehold.sinks.postgres.staging import STAGE, Filled
from leasehold.sinks.rules.fence import Lane, Plan, Range
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.staged import StagedBatch, StagedKept, StagedRowsGone, attempts_of

_ORDER = "s.hub, s.partition, s.owner_level, s.sequence_number, s.aside, s.task, s.n"
_MINE = "s.batch = %(batch)s AND s.attempt = ANY(%(attempts)s::text[])"
_RANGES = (
    "unnest(%(hubs)s::text[], %(partitions)s::text[], %(levels)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[], "
    "%(lanes)s::bigint[], %(ranks)s::integer[]) AS r(hub, partition, owner_level, first, last, lane, rank)"
)
_WITHIN = (
    "s.hub = r.hub AND s.partition = r.partition AND s.owner_level = r.owner_level "
    "AND s.sequence_number BETWEEN r.first AND r.last"
)
_DROPPED = (
    "NOT EXISTS (SELECT 1 FROM unnest(%(dropped_hubs)s::text[], %(dropped_partitions)s::text[], "
    "%(dropped_numbers)s::bigint[]) AS d(hub, partition, number) WHERE d.hub = s.hub AND d.partition = s.partition "
    "AND d.number = s.sequence_number)"
)


def replayed(session: Session, staged: StagedBatch, split: Mapping[Range, int]) -> int:
    """How many staged rows there are of these ranges up to the numbers given."""
    values = _of_ranges({it: (it.first, last) for it, last in split.items()})
    return int(
        session.one(
            f"SELECT count(*) FROM {session.names.of(STAGED)} AS s JOIN {_RANGES} ON {_WITHIN} WHERE {_MINE}",
            batch=staged.batch,
            attempts=attempts_of(staged),
            **values,
        )
    )


class StagedRows:
    """The new rows of a batch that its tasks have staged. See `rows.BatchRows`."""

    def __init__(self, session: Session, layout: Layout, kept: StagedKept) -> None:
        self._session = session
        self._layout = layout
        self._kept = kept
        self._table = session.names.of(STAGED)
        self._values: dict[str, Any] = {"batch": kept.staged.batch, "attempts": attempts_of(kept.staged)}
        self._new = _MINE
        if kept.dropped:
            self._new += f" AND {_DROPPED}"
            hubs, partitions, numbers = map(list, zip(*sorted(kept.dropped), strict=True))
            self._values |= {"dropped_hubs": hubs, "dropped_partitions": partitions, "dropped_numbers": numbers}

    def fill(self, bookkeeping: Bookkeeping) -> Filled:
        """Bring those that can be stored into the temporary table. Raises `StagedRowsGone`."""
        self._check()
        self._values |= _admitted(self._kept.plan, bookkeeping)
        session, layout = self._session, self._layout
        keys = ", ".join(f's.cells[{place + 1}] COLLATE "C"' for place in layout.keys)
        kid = f"dense_rank() OVER (ORDER BY {keys})" if keys else "1"
        cells = ", ".join(
            f"CAST(k.cells[{place}] AS {target.carrier})" for place, target in enumerate(layout.targets, 1)
        )
        # The array is taken apart in what follows, column by column: here it is fetched and unpacked, once.
        count = session.run(
            f"INSERT INTO {STAGE} SELECT k.place - 1, k.kid - 1, k.lane, k.rank, k.sequence_number, k.by_number, "
            f"k.by_text, k.gone, {cells} FROM (SELECT row_number() OVER (ORDER BY {_ORDER}) AS place, {kid} AS kid, "
            "r.lane, r.rank, s.sequence_number, s.by_number, s.by_text, s.gone, s.cells || '{}'::text[] AS cells "
            f"FROM {self._table} AS s JOIN {_RANGES} ON {_WITHIN} WHERE {self._new} AND s.reason IS NULL) AS k",
            **self._values,
        )
        return Filled(count, self._session.one(f"SELECT max(kid) + 1 FROM {STAGE}") or 0)

    def _check(self) -> None:
        """What is there has to be what the receipts say: a crash of the server, or a clearing, leaves less."""
        found: dict[str, int] = dict(
            self._session.rows(
                f"SELECT s.attempt, count(*) FROM {self._table} AS s WHERE {_MINE} GROUP BY s.attempt", **self._values
            )
        )
        for receipt in self._kept.staged.receipts:
            if found.get(receipt.attempt, 0) != receipt.rows:
                raise _gone(self._session, found.get(receipt.attempt, 0), receipt.rows)

    def rejected(self, broken: Mapping[int, str]) -> list[Rejected]:
        """All rows to set aside, in the order of the batch; `broken` are those that the table refused."""
        if not broken and not any(receipt.set_aside for receipt in self._kept.staged.receipts):
            return []
        rows = self._session.rows(
            "SELECT hub, partition, sequence_number, inside - 1, body, is_text, reason, source, cells, place - 1 "
            f"FROM (SELECT s.*, row_number() OVER (ORDER BY {_ORDER}) AS at, row_number() OVER (PARTITION BY s.hub, "
            f"s.partition, s.sequence_number ORDER BY {_ORDER}) AS inside, count(*) FILTER (WHERE s.reason IS NULL) "
            f"OVER (ORDER BY {_ORDER} ROWS UNBOUNDED PRECEDING) AS place "
            f"FROM {self._table} AS s JOIN {_RANGES} ON {_WITHIN} WHERE {self._new}) AS k "
            "WHERE reason IS NOT NULL OR place - 1 = ANY(%(broken)s::bigint[]) ORDER BY at",
            **self._values,
            broken=list(broken),
        )
        return [self._set_aside(row, broken) for row in rows]

    def _set_aside(self, row: tuple[Any, ...], broken: Mapping[int, str]) -> Rejected:
        hub, partition, number, inside, given, is_text, reason, source, cells, place = row
        body: object = given
        if given is not None:
            body = bytes(given).decode() if is_text else bytes(given)
        elif reason is None:
            schema = self._kept.staged.shape.rows.schema
            body = body_from(cells, {name: schema.field(name).type for name in self._layout.columns})
        reason = broken[place] if reason is None else reason
        return Rejected(hub, partition, number, inside, body, reason, source)

    def end(self) -> None:
        """Delete what is merged, and what others have staged for the same batch. Raises `StagedRowsGone`."""
        deleted = self._session.one(
            f"WITH merged AS (DELETE FROM {self._table} AS s WHERE s.batch = %(batch)s RETURNING s.attempt) "
            "SELECT count(*) FROM merged AS s WHERE s.attempt = ANY(%(attempts)s::text[])",
            batch=self._values["batch"],
            attempts=self._values["attempts"],
        )
        if deleted != self._kept.staged.rows:
            raise _gone(self._session, deleted, self._kept.staged.rows)


def _gone(session: Session, found: int, told: int) -> StagedRowsGone:
    return StagedRowsGone(
        f"{STAGED} has {found} of {told} rows that were staged for {session.spec.name}: the server has crashed, which "
        "empties the table, or they were cleared as too old. Nothing of the batch was applied; it is staged again"
    )


def _admitted(plan: Plan, bookkeeping: Bookkeeping) -> dict[str, list[Any]]:
    """The ranges of what is new, with the number and the rank of each partition."""
    new = {one.range: (max(one.after + 1, one.range.first), one.range.last) for one in plan.admitted}
    lanes = sorted({it.lane for it in new}, key=lambda lane: (lane[1], lane[0]))
    ranks = {lane: rank for rank, lane in enumerate(lanes)}
    return _of_ranges(new, bookkeeping.lane_ids(lanes), ranks)


def _of_ranges(
    ranges: Mapping[Range, tuple[int, int]],
    ids: Mapping[Lane, int] | None = None,
    ranks: Mapping[Lane, int] | None = None,
) -> dict[str, list[Any]]:
    return {
        "hubs": [it.hub for it in ranges],
        "partitions": [it.partition for it in ranges],
        "levels": [it.owner_level for it in ranges],
        "firsts": [first for first, _ in ranges.values()],
        "lasts": [last for _, last in ranges.values()],
        "lanes": [(ids or {}).get(it.lane) for it in ranges],
        "ranks": [(ranks or {}).get(it.lane) for it in ranges],
    }
