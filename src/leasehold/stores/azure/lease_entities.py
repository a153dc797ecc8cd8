"""Leases and their sessions as entities of one partition of a table, and the requests that read and write them.

    PartitionKey "Leasehold leases"
        RowKey "lease HASH OF SCOPE HASH OF KEY"    the fence, and the session that holds the key, if one does
        RowKey "session ID beat"                    its Timestamp is the session's last heartbeat; owner and duration
        RowKey "session ID life"                    there as long as the session is

Owns what a transaction is made of. All entities are in one partition, so that up to 100 writes are one transaction:
each compares the ETag of its entity, and all are made or none. A session has two entities, since a transaction cannot
look at an entity without writing it: writing `life` ("if it is there") is how one asks whether a session lives, and
must not count as a heartbeat. Both are deleted in one transaction, by whoever closes the session or buries it.

A write carries a text that is new with each, so that one whose answer was lost is known again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from azure.core import MatchConditions
from azure.data.tables import TableClient, TableEntity, TableTransactionError, UpdateMode

from leasehold.errors import StoreError, StoreUnavailable
from leasehold.model import Lease, LeaseSession
from leasehold.stores.azure.calls import Calls, ConditionFailed, Deadline
from leasehold.stores.azure.dates import http_date, time_in_etag
from leasehold.stores.azure.layout import WRITE, to_header
from leasehold.stores.azure.lease_texts import fence_of, names_of, session_of
from leasehold.stores.azure.names import ANY_CASE, encode
from leasehold.stores.lease_base import LeaseStatus

PARTITION = "Leasehold leases"
LARGEST_TRANSACTION = 100
"""How many entities a transaction of the service may write."""

_FENCE, _SESSION, _OWNER, _DURATION, _KEY, _SCOPE = "fence", "session", "owner", "duration", "key", "scope"
_SHOWN = 200  # characters of a key that are kept in its entity, for people

Name = tuple[str, str]
"""A scope and a key."""


@dataclass(frozen=True, slots=True)
class KeyEntity:
    """The entity of a key: the highest fence that was given for it, and who holds it; no ETag: it is not there."""

    fence: int = 0
    session: LeaseSession | None = None
    etag: str | None = None
    write: str = ""


@dataclass(frozen=True, slots=True)
class Beat:
    """The last heartbeat of a session, and how late it was when it was read: both by the service's clock."""

    etag: str
    time: float
    age: float
    write: str


@dataclass(frozen=True, slots=True)
class EntityWrite:
    """A write to the entity of a key, from one row to another, and the sessions that must be alive for it."""

    name: Name
    before: KeyEntity
    after: KeyEntity
    alive: frozenset[str]


def packed(steps: Iterable[EntityWrite]) -> list[list[EntityWrite]]:
    """The steps in as few transactions as they go into in this order."""
    groups: list[list[EntityWrite]] = []
    alive: frozenset[str] = frozenset()
    for step in steps:
        if not groups or len(groups[-1]) + 1 + len(alive | step.alive) > LARGEST_TRANSACTION:
            groups.append([])
            alive = frozenset()
        groups[-1].append(step)
        alive |= step.alive
    return groups


class LeaseEntities:
    """The requests. Any number of threads and processes may make any of them at once."""

    def __init__(self, table: TableClient, calls: Calls) -> None:
        self._table = table
        self._calls = calls

    # Keys

    def row(self, name: Name, deadline: Deadline) -> KeyEntity:
        """How a key stands."""
        found = self._read(_lease_key(name), deadline)
        return KeyEntity() if found is None else _row(found[0])

    def listed(self, scope: str | None, deadline: Deadline) -> list[LeaseStatus]:
        """What is held, of all scopes or one, by one listing of keys and heartbeats."""
        while True:
            try:
                return self._listed(scope, deadline)
            except StoreUnavailable:
                if not deadline.allows_another:
                    raise
                deadline.pause()

    def _listed(self, scope: str | None, deadline: Deadline) -> list[LeaseStatus]:
        dates: list[float] = []
        with self._calls.asking():
            entities = list(
                self._table.query_entities(
                    "PartitionKey eq @key",
                    parameters={"key": PARTITION},
                    raw_response_hook=lambda response: dates.append(http_date(response.http_response.headers)),
                    **deadline.request(),
                )
            )
        beats = {str(entity["RowKey"]): entity.metadata["timestamp"] for entity in entities}
        folder = "lease " if scope is None else _lease_key((scope, ""))[:38]
        statuses = []
        for entity in entities:
            session = _row(entity).session
            beat = None if session is None else beats.get(_beat_key(session.id))
            if session is None or beat is None or not str(entity["RowKey"]).startswith(folder):
                continue
            remaining = None if session.duration is None else session.duration - (dates[0] - beat.timestamp())
            name = names_of(scope, entity.get(_SCOPE), entity.get(_KEY))
            if name is not None and (remaining is None or remaining > 0):
                statuses.append(LeaseStatus(Lease(*name, session, _row(entity).fence), remaining))
        return statuses

    def write(self, steps: Sequence[EntityWrite], deadline: Deadline) -> list[KeyEntity | None] | None:
        """Make all steps in one transaction; return the rows as it left them. None if one of them cannot be made.

        A row is None where it is not known how it was left: the answer was lost, and it was written to since.
        """
        mark = secrets.token_hex(6)
        living = sorted({session for step in steps for session in step.alive})
        operations: list[Any] = [
            ("update", _entity(_life_key(session)), {"mode": UpdateMode.MERGE}) for session in living
        ]
        for step in steps:
            entity = _entity(_lease_key(step.name), **_properties(step), **{WRITE: mark})
            if step.before.etag is None:
                operations.append(("create", entity))
            else:
                operations.append(("update", entity, {"mode": UpdateMode.REPLACE, **_condition(step.before.etag)}))
        unanswered = False
        while True:
            try:
                answers = self._submit(operations, deadline)[len(living) :]
                return [
                    KeyEntity(step.after.fence, step.after.session, str(answer["etag"]), mark)
                    for step, answer in zip(steps, answers, strict=True)
                ]
            except ConditionFailed:
                return self._made(steps, mark, deadline) if unanswered else None
            except StoreUnavailable:
                if not deadline.allows_another:
                    raise
                unanswered = True
                deadline.pause()

    def _made(self, steps: Sequence[EntityWrite], mark: str, deadline: Deadline) -> list[KeyEntity | None] | None:
        """What has become of a transaction without an answer: all of it was made, or nothing."""
        rows = [self.row(step.name, deadline) for step in steps]
        if any(row.write == mark for row in rows):
            return [row if row.write == mark else None for row in rows]
        if any(
            row.etag == step.before.etag or _went_to_another(step, row) for step, row in zip(steps, rows, strict=True)
        ):
            return None
        raise StoreUnavailable(f"{self._calls.where}: no answer came, and all of it was written to since")

    # Sessions

    def open(self, session: LeaseSession, deadline: Deadline) -> Beat:
        """Make the entities of a new session, in one request that is never made again.

        After a `StoreUnavailable` the id is used up: a request that arrives late would bring the session back, when it
        has been opened once more and closed.
        """
        beat = _entity(_beat_key(session.id), **_stated(session), **{WRITE: secrets.token_hex(6)})
        with suppress(
            ConditionFailed
        ):  # nobody else makes entities of this name: the service says why when they are read
            self._submit([("create", _entity(_life_key(session.id))), ("create", beat)], deadline)
        made = self.beat(session.id, deadline)
        if made is None:
            raise StoreError(f"{self._calls.where}: a session that was just opened is not there")
        return made

    def beat(self, session_id: str, deadline: Deadline) -> Beat | None:
        """The last heartbeat. None if there is no such session any more."""
        found = self._read(_beat_key(session_id), deadline)
        if found is None:
            return None
        entity, now = found
        etag, timestamp = entity.metadata["etag"], entity.metadata["timestamp"]
        if etag is None or timestamp is None:
            raise StoreError(f"{self._calls.where}: an entity came without its ETag or Timestamp")
        return Beat(etag, timestamp.timestamp(), now - timestamp.timestamp(), str(entity.get(WRITE) or ""))

    def renew(self, session: LeaseSession, last: Beat, deadline: Deadline) -> Beat | None:
        """A heartbeat after `last`; None if that is not the last one any more, or the session is gone."""
        mark = secrets.token_hex(6)
        entity = _entity(_beat_key(session.id), **_stated(session), **{WRITE: mark})
        while True:
            try:
                with self._calls.asking():
                    etag = str(
                        self._table.update_entity(
                            entity, UpdateMode.REPLACE, **_condition(last.etag), **deadline.request()
                        )["etag"]
                    )
                if time := time_in_etag(etag):
                    return Beat(etag, time, 0.0, mark)
            except ConditionFailed:
                pass
            except StoreUnavailable:
                if not deadline.allows_another:
                    raise
                deadline.pause()
                continue
            beat = self.beat(session.id, deadline)
            return beat if beat is not None and beat.write == mark else None

    def bury(self, session_id: str, last: Beat | None, deadline: Deadline) -> bool:
        """Delete the session, if `last` still is its last heartbeat (None: whatever is). False if it is not."""
        condition = {} if last is None else _condition(last.etag)
        try:
            self._until(
                deadline,
                [("delete", _entity(_beat_key(session_id)), condition), ("delete", _entity(_life_key(session_id)), {})],
            )
        except ConditionFailed:
            return self.beat(session_id, deadline) is None
        return True

    # Requests

    def _read(self, key: str, deadline: Deadline) -> tuple[TableEntity, float] | None:
        """An entity, and the service's time when it was read: cut down to whole seconds."""
        dates: list[float] = []
        while True:
            try:
                with self._calls.asking():
                    entity = self._table.get_entity(
                        PARTITION,
                        key,
                        raw_response_hook=lambda response: dates.append(http_date(response.http_response.headers)),
                        **deadline.request(),
                    )
                return entity, dates[-1]
            except ConditionFailed:
                return None
            except StoreUnavailable:
                if not deadline.allows_another:
                    raise
                deadline.pause()

    def _until(self, deadline: Deadline, operations: list[Any]) -> None:
        """Submit a transaction that may be submitted twice, again if it has no answer and there is time."""
        while True:
            try:
                self._submit(operations, deadline)
                return
            except StoreUnavailable:
                if not deadline.allows_another:
                    raise
                deadline.pause()

    def _submit(self, operations: list[Any], deadline: Deadline) -> list[Any]:
        with self._calls.asking():
            try:
                return list(self._table.submit_transaction(operations, **deadline.request()))
            except TableTransactionError as error:
                code = getattr(error, "error_code", None)
                code = str(getattr(code, "value", code))
                if error.status_code in (404, 409, 412) and code != "TableNotFound":
                    raise ConditionFailed(code) from None
                raise


def _lease_key(name: Name) -> str:
    scope, key = (hashlib.sha256(part.encode()).hexdigest() for part in name)
    return f"lease {scope[:32]} {key}"


def _life_key(session_id: str) -> str:
    return f"session {encode(session_id, ANY_CASE)} life"


def _beat_key(session_id: str) -> str:
    return f"session {encode(session_id, ANY_CASE)} beat"


def _entity(row_key: str, **properties: str) -> dict[str, str]:
    return {"PartitionKey": PARTITION, "RowKey": row_key, **properties}


def _condition(etag: str) -> dict[str, Any]:
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def _stated(session: LeaseSession) -> dict[str, str]:
    return {
        _OWNER: to_header(session.owner),
        _DURATION: "none" if session.duration is None else repr(float(session.duration)),
    }


def _properties(step: EntityWrite) -> dict[str, str]:
    session = step.after.session
    return {
        _FENCE: str(step.after.fence),
        _KEY: to_header(step.name[1][:_SHOWN]),
        _SCOPE: to_header(step.name[0]),
        **({} if session is None else {_SESSION: session.id, **_stated(session)}),
    }


def _went_to_another(step: EntityWrite, row: KeyEntity) -> bool:
    """Whether another session holds the key under the fence that this step would have given.

    A fence is given once. So the step was not made, and not undone since either.
    """
    theirs, ours = row.session, step.after.session
    raises = step.after.fence > step.before.fence
    return raises and row.fence == step.after.fence and theirs is not None and ours is not None and theirs.id != ours.id


def _row(entity: TableEntity) -> KeyEntity:
    session = session_of(entity.get(_SESSION), entity.get(_OWNER), entity.get(_DURATION))
    return KeyEntity(fence_of(entity.get(_FENCE)), session, entity.metadata["etag"], str(entity.get(WRITE) or ""))
