"""What is done beside a table is written once, in SQL that two databases read: what each of them brings for that.

Owns the contract. Every statement has named parameters, `%(name)s`, and writes a percent sign that names no parameter
twice. What only one database can do (locks on rows, COPY, SKIP LOCKED) is not here, but for the few words of SQL that
differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from leasehold.database.statements import quoted, sent
from leasehold.database.tables import Kind
from leasehold.sinks.beside.forgetting import Forgotten
from leasehold.sinks.beside.kept_values import kept_body
from leasehold.sinks.rules.columns import on_conflict
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.transactions import TableTransaction

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MINE", "REJECTED", "Access", "Asked", "BesideTransaction", "Places", "Session", "mine_of", "names_in"]

T = TypeVar("T")
Places = Mapping[Lane, int]
"""A sequence number of each of some partitions."""
Asked = tuple[str, dict[str, Any]]
"""Rows that a statement is given: as SQL that names them in a FROM, and the values to give with it."""

REJECTED: Mapping[str, Kind] = {
    "hub": "text",
    "partition": "text",
    "sequence_number": "bigint",
    "place": "bigint",
    "body": "bytea",
    "is_text": "boolean",  # the body is, in UTF-8: it may have a NUL, which some databases hold in no text
    "reason": "text",
    "source": "text",
    "rejected_at": "timestamptz",
}
"""The columns of the table of rejected rows, for a database that leaves `set_aside` at its default."""

MINE = "pipeline = %(pipeline)s AND entity_table = %(name)s"
"""What is kept of the table in a table that several share. Its values are `mine_of`."""


def mine_of(spec: TableSpec, lane: Lane | None = None) -> dict[str, Any]:
    """The values of `MINE`, with `hub` and `partition` if there is one."""
    named = {"pipeline": spec.pipeline, "name": spec.name}
    return named if lane is None else {**named, "hub": lane[0], "partition": lane[1]}


class Session(ABC):
    """A transaction, or a look, at the table `spec`.

    Statements are in the form of `database.statements`. The values that come with one may be more than it names. What
    is not abstract has a default, in words that most databases read.
    """

    spec: TableSpec

    @abstractmethod
    def run(self, statement: str, **values: Any) -> int:
        """Run a statement; return how many rows it has inserted, updated or deleted."""

    @abstractmethod
    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """The rows that a query gives."""

    @abstractmethod
    def there(self, table: str) -> bool:
        """Whether there is a table of this name."""

    @abstractmethod
    def asked(self, alias: str, columns: Mapping[str, Kind], rows: Iterable[Sequence[Any]]) -> Asked:
        """Rows of these columns, for a FROM that calls them `alias`; there may be none.

        The values are called so that they do not meet others: they begin with `alias`. Rows with a value that no column
        of the database can hold (a number of more than 64 bits) are left out.
        """

    @property
    @abstractmethod
    def dead_letter(self) -> str:
        """SQL for whether a rejected row is of an event that its handler has failed on."""

    def of(self, table: str) -> str:
        """The name of a table, as SQL to be put into a statement."""
        return sent(quoted(table))

    def one(self, statement: str, **values: Any) -> Any:
        """The first value of the first row that a query gives, None where it gives none."""
        rows = self.rows(statement, **values)
        return rows[0][0] if rows else None

    def many(self, statement: str, values: Sequence[Mapping[str, Any]]) -> int:
        """Run a statement once for each of `values`, in their order; return how many rows they concerned."""
        return sum(self.run(statement, **each) for each in values)

    def put(self, table: str, columns: Mapping[str, Kind], keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
        """Insert these rows (one at least), or update those whose keys are there; return how many were written."""
        return self._insert(table, columns, rows, on_conflict(keys, [name for name in columns if name not in keys]))

    def _insert(self, table: str, columns: Mapping[str, Kind], rows: Iterable[Sequence[Any]], then: str = "") -> int:
        names, (given, values) = ", ".join(columns), self.asked("given", columns, rows)
        into = f"INSERT INTO {self.of(table)} ({names})"
        return self.run(f"{into} SELECT {names} FROM {given} WHERE true {then}", **values)

    def clock(self) -> float:
        """The time by the clock of the database's machine, in seconds since 1970."""
        return float(self.one("SELECT extract(epoch FROM current_timestamp)"))

    def storable(self, text: str) -> str:
        """The text as the database can hold it."""
        return text

    def contains(self, column: str, name: str) -> str:
        """SQL for whether a text has the value of this name in it."""
        return f"strpos({column}, %({name})s) > 0"

    @property
    def locking(self) -> str:
        """What a SELECT ends with that locks its rows; empty where a transaction has locked the whole database."""
        return ""

    @property
    def sharing(self) -> str:
        """What a SELECT ends with that keeps its rows as they are, and lets others do the same."""
        return ""

    def oldest(self, table: str, time: str, where: str) -> str:
        """SQL for whether a row is one of the first %(at_most)s of this WHERE, and has a time before %(before)s.

        `time` is a column in which times rise with the rows.
        """
        first = f"SELECT rowid FROM {table} WHERE {where} ORDER BY rowid LIMIT %(at_most)s"
        return f"rowid IN ({first}) AND {time} < %(before)s"

    def first_free(self, table: str, key: str, where: str) -> str:
        """SQL for whether a row is among those of this WHERE that nobody else has locked. `key` are its key columns."""
        return f"({key}) IN (SELECT {key} FROM {table} WHERE {where})"

    def sound(self, names: Sequence[str], *numbers: str) -> str:
        """SQL for whether columns have names and numbers, as Leasehold writes them. Default: types see to it."""
        return "true"

    @property
    def rejected_columns(self) -> str:
        """What a rejected row has behind its place: body, whether that is text kept as bytes, reason, source, time.

        Reason and source are as `text` gives them.
        """
        return f"body, is_text, reason, source, {self.time_text('rejected_at')}"

    def remove_set_aside(self, ranges: Sequence[tuple[str, str, int, int]]) -> None:
        """Remove the rejected rows of events: of a hub and partition, from a sequence number to another, inclusive."""
        if not ranges:
            return
        columns: dict[str, Kind] = {"of_hub": "text", "name": "text", "lowest": "bigint", "highest": "bigint"}
        read, values = self.asked("read", columns, ranges)
        self.run(
            f"DELETE FROM {self.of(self.spec.rejected)} AS old USING {read} WHERE old.hub = read.of_hub "
            "AND old.partition = read.name AND old.sequence_number BETWEEN read.lowest AND read.highest",
            **values,
        )

    def set_aside(self, rows: Sequence[Rejected], time: str) -> None:
        """Insert rejected rows, with the time at which they were set aside."""
        kept = ((*row[:4], *kept_body(row.body), self.storable(row.reason), row.source, time) for row in rows)
        self._insert(self.spec.rejected, REJECTED, kept)

    def time_text(self, time: str) -> str:
        """SQL for a time that was kept beside the table, as ISO 8601 text in UTC. Default: it is kept so."""
        return time

    def bytewise(self, column: str) -> str:
        """SQL for a text by which rows are ordered as by its bytes."""
        return column

    def text(self, column: str) -> str:
        """SQL for a column of texts. Where others may have left anything in it, what it gives is UTF-8 as bytes."""
        return column

    def number(self, column: str) -> str:
        """SQL for a column of numbers, 0 where others may have left no number."""
        return column

    def anything(self, column: str) -> str:
        """SQL for a column of numbers as it is. Where others may have left anything, what gives a text is bytes."""
        return column


class BesideTransaction(TableTransaction, Protocol):
    """A transaction of a sink, as what changes something beside the table sees it."""

    @property
    def session(self) -> Session: ...

    def need(self, *tables: str) -> None:
        """Make these tables if they are missing, before anything is locked. Raises `UsageError`."""
        ...

    def has(self, table: str) -> bool:
        """Whether this table is there. Raises `UsageError` for somebody else's."""
        ...

    def set_aside(self, rows: Sequence[Rejected], now: float) -> None:
        """Set rows aside, of events that have none."""
        ...

    def forget(self, key: Mapping[str, str]) -> Forgotten:
        """Forget what is kept of an entity beside its row, by its key as text. Watermarks are locked."""
        ...

    def clear_keys(
        self, old: Places, old_of_deleted: Places, after: tuple[object, ...] | None, at_most: int
    ) -> tuple[Sequence[tuple[Lane, int]], tuple[object, ...] | None]:
        """Clear what is known of keys whose last event is at or below these places, of those behind `after`.

        Returns the events that had written these keys last, and where to go on, None after the last key.
        """
        ...


@dataclass(frozen=True, slots=True)
class Access:
    """The ways into a sink's database.

    changing    opens a transaction on the table, which is this pipeline's
    looking     opens a look, with nothing made, at these tables. Raises `UsageError` for somebody else's
    viewing     opens one that sees one moment
    read_states reads states in a look: see `KeepsStates`
    again       does once more what the database undoes for others' sake
    wall        the time, in seconds since 1970
    """

    changing: Callable[[], AbstractContextManager[BesideTransaction]]
    looking: Callable[..., AbstractContextManager[Session]]
    viewing: Callable[..., AbstractContextManager[Session]]
    read_states: Callable[[Any, pa.Schema, Sequence[Key]], dict[Key, dict[str, Any]]]
    again: Callable[[Callable[[], Any]], Any]
    wall: Callable[[], float]

    def changed(self, change: Callable[[BesideTransaction], T], *needed: str) -> T:
        """What `change` returns of a transaction in which the tables `needed` are there."""

        def once() -> T:
            with self.changing() as transaction:
                if needed:
                    transaction.need(*needed)
                return change(transaction)

        result: T = self.again(once)
        return result


def names_in(rows: Iterable[Sequence[object]]) -> Iterator[tuple[str, ...]]:
    """Of `Session.text`s those that are text: what was written as anything else names nothing that Leasehold has."""
    for row in rows:
        with suppress(UnicodeDecodeError):
            yield tuple(one.decode() if isinstance(one, bytes) else str(one) for one in row)
