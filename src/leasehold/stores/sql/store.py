"""Ownership and checkpoints in a database that is asked in SQL, whichever it is.

Owns what a call asks of the database, and what it makes of the answer; `statements.py` has the SQL. Refuses names that
not every store can keep, unless the database's own store says otherwise.

Concurrency: each call is one transaction, or a few where records of one key are given several times. A record is
compared and written under its lock: of many claims that name one ETag, the first to lock it wins and the others find
another ETag. What a claim or checkpoint returned is on disk; renewals, presences and asks may be lost with the power.
"""

from __future__ import annotations

import dataclasses
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from leasehold.errors import NotTheOwner
from leasehold.model import Ask, Checkpoint, ConsumerGroup, Ownership, OwnershipListing, Presence, RecordKind
from leasehold.stores.base import PipelineBinding
from leasehold.stores.names import check_group, check_name, check_records, legible
from leasehold.stores.readable import listing, read, read_binding
from leasehold.stores.rules import raised, refusal
from leasehold.stores.skipped import Skipped
from leasehold.stores.sql.records import (
    Key,
    ask_values,
    checkpoint_values,
    group_values,
    key_of,
    keys_apart,
    ownership_values,
    presence_values,
    tag_of,
    to_ask,
    to_checkpoint,
    to_ownership,
    to_presence,
)
from leasehold.stores.sql.statements import BIND, BOUND_TO, REBIND, Statements
from leasehold.stores.sql.steps import Row, SqlStep, Values


class SqlStore(ABC):
    """Ownership and checkpoints in a database, which is what `shown` says and has these `statements`."""

    shown: str
    statements: Statements

    def __init__(self) -> None:
        self._skipped = Skipped(self.shown)

    @abstractmethod
    def _read(self, statement: str, values: Values, records: Sequence[Values] = ()) -> list[Row]:
        """The rows of a statement that changes nothing, about these records where it speaks of any."""

    @abstractmethod
    def _write(self, *steps: SqlStep, values: Values | None = None, durable: bool = True) -> list[Row]:
        """Do these steps in one transaction and one request, and return their rows.

        Where they say what was written, those of a partition begin with its key, behind which is the time. No step
        knows what the others write. What is not `durable` may be lost with the power.
        """

    @abstractmethod
    def _records_of(self, group: ConsumerGroup) -> tuple[float, Iterable[Sequence[Row]]]:
        """The time of the clock, and the rows of each table that is `Statements.listed`, as they are at one moment."""

    # Ownership

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        self._check_group(group)
        as_of, (owned, present, asked) = self._records_of(group)
        return listing(
            [read(RecordKind.OWNERSHIP, group, row[0], partial(to_ownership, group), row, tag=tag_of) for row in owned],
            as_of,
            [read(RecordKind.PRESENCE, group, row[0], partial(to_presence, group), row) for row in present],
            [read(RecordKind.ASK, group, row[0], partial(to_ask, group), row) for row in asked],
        )

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        return self._put(self.statements.claim_known, claims, durable=True)

    def renew_ownership(self, held: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        beside = []
        if presence is not None:
            self._check_group(presence.group)
            self._check_name("owner id", presence.owner_id)
            beside = [SqlStep(self.statements.present, [presence_values(presence)], "presences")]
        known = [record for record in held if record.etag is not None]
        return self._put(self.statements.renew, known, *beside, durable=False)

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        given_up = [dataclasses.replace(record, owner_id="") for record in held if record.etag is not None]
        return self._put(self.statements.claim_known, given_up, durable=True)

    def _put(self, statement: str, records: Sequence[Ownership], *beside: SqlStep, durable: bool) -> list[Ownership]:
        """Write the records, and what is beside the first of them; return those that were written."""
        self._check_records(records)
        won: dict[int, Ownership] = {}
        for apart in keys_apart(records) or [[]]:
            new = [ownership_values(record) for _, record in apart if record.etag is None]
            known = [ownership_values(record) for _, record in apart if record.etag is not None]
            steps = [*beside]
            steps += [SqlStep(self.statements.claim_new, new, "new_records")] if new else []
            steps += [SqlStep(statement, known)] if known else []
            if not steps:
                continue
            etag = secrets.token_hex(8)
            rows = self._write(*steps, values={"etag": etag}, durable=durable)
            modified = {row[:4]: row[4] for row in rows} if apart else {}
            for position, record in apart:
                if (at := modified.get(key_of(record))) is not None:
                    won[position] = dataclasses.replace(
                        record, etag=etag, last_modified=at, last_error=legible(record.last_error)
                    )
            beside = ()
        return [won[position] for position in sorted(won)]

    def withdraw_presence(self, group: ConsumerGroup, owner_ids: Sequence[str]) -> None:
        self._check_group(group)
        named = [{**group_values(group), "owner_id": owner_id} for owner_id in owner_ids]
        self._write(SqlStep(self.statements.withdraw_presence, named), durable=False)

    def ask(self, asks: Sequence[Ask]) -> None:
        self._check_records(asks)
        for apart in keys_apart(asks):
            self._write(SqlStep(self.statements.ask, [ask_values(ask) for _, ask in apart]), durable=False)

    def withdraw_asks(self, asks: Sequence[Ask]) -> None:
        self._check_records(asks)
        if asks:
            self._write(SqlStep(self.statements.withdraw_asks, [ask_values(ask) for ask in asks]), durable=False)

    # Checkpoints

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        self._check_group(group)
        rows = self._read(self.statements.checkpoints, group_values(group))
        return self._skipped.left(
            read(RecordKind.CHECKPOINT, group, row[0], partial(to_checkpoint, group), row) for row in rows
        )

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        self._check_records(starts)
        if not starts:
            return []
        wanted: dict[Key, Checkpoint] = {}
        for start in starts:
            wanted[key_of(start)] = raised(wanted.get(key_of(start)), start)
        records = [checkpoint_values(wanted[key]) for key in sorted(wanted)]
        rows = self._write(SqlStep(self.statements.raise_owner_level, records))
        stands = {row[:4]: row[3:] for row in rows}
        return self._skipped.left(
            read(
                RecordKind.CHECKPOINT,
                start.group,
                start.partition,
                partial(to_checkpoint, start.group),
                stands[key_of(start)],
            )
            for start in starts
        )

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        self._check_records(checkpoints)
        refused: dict[int, NotTheOwner] = {}
        for apart in keys_apart(checkpoints):
            left = list(apart)
            while left:  # once, unless a refused one can no longer be told why: its record has just been deleted
                records = [checkpoint_values(checkpoint) for _, checkpoint in left]
                rows = self._write(SqlStep(self.statements.update_checkpoints, records))
                taken = {row[:4] for row in rows}
                left = [(position, checkpoint) for position, checkpoint in left if key_of(checkpoint) not in taken]
                reasons = dict(self._reasons(left))
                refused |= reasons
                left = [(position, checkpoint) for position, checkpoint in left if position not in reasons]
        return [refused[position] for position in sorted(refused)]

    def _reasons(self, refused: Sequence[tuple[int, Checkpoint]]) -> Iterator[tuple[int, NotTheOwner]]:
        """Why these were refused, from the records as they stand by now: those only ever rise."""
        if not refused:
            return
        rows = self._read(self.statements.stands, {}, [checkpoint_values(checkpoint) for _, checkpoint in refused])
        stands = {row[:4]: row[4:] for row in rows}
        for position, checkpoint in refused:
            if (found := stands.get(key_of(checkpoint))) is not None:
                reason = refusal(Checkpoint(checkpoint.group, checkpoint.partition, *found), checkpoint)
                if reason is not None:
                    yield position, reason

    def pipeline_binding(self, group: ConsumerGroup) -> PipelineBinding | None:
        self._check_group(group)
        rows = self._read(BOUND_TO, group_values(group))
        return read_binding(self.shown, group, tuple, rows[0]) if rows else None

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        return self._bind(BIND, group, binding)

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        self._bind(REBIND, group, binding)

    def _bind(self, statement: str, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        self._check_group(group)
        values = {**group_values(group), "pipeline": binding.pipeline, "sink": binding.sink}
        [row] = self._write(SqlStep(statement, [values]), values=values)
        return read_binding(self.shown, group, tuple, row)

    # What it refuses

    def _check_name(self, field: str, name: str) -> None:
        check_name(field, name)

    def _check_group(self, group: ConsumerGroup) -> None:
        check_group(group)

    def _check_records(self, records: Sequence[Ownership | Checkpoint | Ask]) -> None:
        check_records(records)
