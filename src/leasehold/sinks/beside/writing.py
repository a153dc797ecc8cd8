"""Rows of a batch, or of rejected events that are tried again, written by a database that judges them row by row.

Owns the order of it: what is known of the keys, which rows count, writing, the memory of keys, what orders the table. A
database brings its memory of keys (`KnownKeys`), and writes the rows that it is given in the order that it is given,
for example by `rules.row_by_row.RowWriter`. (Postgres merges rows in SQL, and does without this.)

Runs inside a transaction of the caller's, in which nobody else changes what is known of the keys.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from leasehold.sinks.beside import clearing, record
from leasehold.sinks.beside.session import Session
from leasehold.sinks.beside.set_aside import retrying
from leasehold.sinks.rules.batch import Batch, Kept, OrderValue
from leasehold.sinks.rules.content import Columns, Content, content_of
from leasehold.sinks.rules.ordering import UNKNOWN, Claim, Key, PastOrder
from leasehold.sinks.rules.remembered_order import TableOrder
from leasehold.sinks.rules.row_by_row import RowOrder, Written, not_comparable
from leasehold.sinks.rules.rows import Rows
from leasehold.sinks.transactions import Outcome

Write = Callable[[Rows, RowOrder], Written]
"""Writes rows as an order says; see `RowWriter` for what it promises and raises."""


class KnownKeys(ABC):
    """The memory of keys of a table, which has them. A key is as `Rows.keys` gives it."""

    @abstractmethod
    def known(self, keys: Sequence[Key]) -> Iterable[tuple[Key, str, str, int, OrderValue | None]]:
        """Of each of these keys that is remembered: hub, partition, sequence number and value of `sequence_by`."""

    @abstractmethod
    def own_claims(self, keys: Sequence[Key]) -> Mapping[Key, Claim]:
        """What rows of these keys, which are not remembered, are compared by: rule 6 of `remembered_order`."""

    @abstractmethod
    def remember(self, rows: Iterable[tuple[object, ...]]) -> object:
        """Note of each key, in place of what was, what `Content.remembered` gives.

        That is the key's values in the order of `ordered_keys`, then hub, partition, sequence number, the value of
        `sequence_by` (a number or text, None without it) and 1 where the entity was deleted, else 0.
        """

    def claims(self, keys: Sequence[Key], *, by_value: bool) -> Mapping[Key, Claim]:
        """What is known of these keys: `(hub, partition)`, and `by_value` as in rules 2 and 4 of `ordering`.

        That is `(value, partition, hub, sequence number)`, and `UNKNOWN` for a key that was remembered without a value.
        """
        known = self.known(keys)
        if not by_value:
            return {key: (hub, partition) for key, hub, partition, _, _ in known}
        claims: dict[Key, Claim] = {
            key: UNKNOWN if value is None else (value, partition, hub, number)
            for key, hub, partition, number, value in known
        }
        others = [key for key in keys if key not in claims]
        return {**claims, **self.own_claims(others)} if others else claims

    def places(self, keys: Sequence[Key]) -> Mapping[Key, Claim]:
        """The event that has written each of these keys last: `(hub, partition, sequence number)`."""
        return {key: (hub, partition, number) for key, hub, partition, number, _ in self.known(keys)}


def write(
    session: Session,
    columns: Columns,
    batch: Batch,
    kept: Kept,
    order: TableOrder,
    memory: KnownKeys,
    write_rows: Write,
    *,
    at_once: Callable[[Rows], Written | None] = lambda rows: None,
) -> Outcome:
    """See `TableTransaction.write`. `columns` are those that are bound.

    `at_once` writes rows, and remembers their keys, in a quicker way of the database's own, where that has the same
    outcome; else it leaves nothing written and returns None, or raises `EachRowNeeded`.
    """
    spec = session.spec
    began = time.monotonic()
    content = content_of(batch, columns, kept)
    staged = time.monotonic()
    written = at_once(content.rows)
    if written is None:
        row_order = content.order(
            # of a spread table, where a key was before says nothing
            lambda keys: {} if spec.spread else memory.claims(keys, by_value=order.kind is not None),
            keyed=bool(spec.keys),
        )
        written = write_rows(content.rows, row_order)
        if spec.keys:
            memory.remember(content.remembered(row_order))
    if spec.keys and written.applied:
        record.note_order(session, order)
    seconds = {"stage": staged - began, "merge": time.monotonic() - staged}
    return Outcome(written.applied, written.superseded, content.rejected(written.broken), seconds)


def write_again(
    session: Session,
    columns: Columns,
    batch: Batch,
    kept: Kept,
    order: TableOrder,
    memory: KnownKeys,
    write_rows: Write,
) -> Outcome:
    """The same, `again`: rows of events that are tried again, by rule 2 of `set_aside`."""
    content = content_of(batch, columns, kept)
    if session.spec.keys and (cleared := clearing.cleared_up_to(session)):
        keys = list(dict.fromkeys(content.rows.keys))
        content = retrying.without_doubtful(content, memory.places(keys), cleared)
    judge = _past_order(content, memory, by_value=order.kind is not None, keyed=bool(session.spec.keys))
    written = write_rows(content.rows, judge)
    broken = dict(written.broken)
    if isinstance(judge, PastOrder):
        broken |= {index: not_comparable(lane) for index, lane in judge.conflicts.items()}
    if remembered := list(content.remembered(judge)):
        memory.remember(remembered)
        record.note_order(session, order)
    return Outcome(written.applied, written.superseded, content.rejected(broken))


def _past_order(content: Content, memory: KnownKeys, *, by_value: bool, keyed: bool) -> RowOrder:
    """What decides which rows count that come after their time."""
    if by_value or not keyed:
        return content.order(lambda keys: memory.claims(keys, by_value=by_value), keyed=keyed)
    rows = content.rows
    places = [(*lane, number) for lane, number in zip(rows.lanes, rows.numbers, strict=True)]
    return PastOrder(rows.keys, places, memory.places(list(dict.fromkeys(rows.keys))))
