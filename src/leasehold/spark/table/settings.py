"""What an entity table is given, as values: the rules for its rows, how they are written, and whose batches count.

Owns these values. Refuses what a value can tell by itself: a
text that is no expression, a number out of its range, one of two that go together. What also takes the table's mode,
columns or database to tell is for the table and its sink to refuse. Needs no Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leasehold.config import check_number, default_where_none, parse_duration
from leasehold.errors import ConfigError
from leasehold.model import ConsumerGroup
from leasehold.sinks.rules.table_spec import check_deduplication
from leasehold.stores.base import OwnershipStore

__all__ = ["OwnershipRecords", "RowRules", "Writing"]

_OF_KEYS = ("sequence_by", "delete_when")
"""Rules for a table with keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """What becomes of a row: whether it is the table's, counts as the last of its key, deletes, is rejected or dropped.

    when             a Spark SQL condition: rows for which it is not true are none of the table's, as if the transform
                     had left them out. Default: all rows are the table's
    sequence_by      a Spark SQL expression: of two events of a key the one with the higher value counts. Needed where
                     events of one key come from several partitions. Where it names a column, rows that were there
                     count by what they have in it. The table remembers `sequence_by`: another one, or a
                     `delete_when` where there was none, is refused until all events are read again. Default: the later
                     one in its partition counts
    delete_when      a Spark SQL condition: an event for which it is true deletes its entity. Default: none does
    reject_by        a Spark SQL expression that gives the reason why a row is rejected, null where it is good: rejected
                     rows go to `<table>_rejected`, in the same transaction. A column of this name is not stored.
                     Default: no row is rejected by an expression
    deduplicate_by   a Spark SQL expression over the events before the transform (with `foreachBatch`: over the
                     DataFrame): an event for which an earlier one gave the same value, not null, is dropped.
                     Default: every event counts
    deduplicate_for  if they were enqueued at most so long after one another: seconds, or a text such as "10m". Required
                     with `deduplicate_by`
    on_two_partitions  what becomes of an event whose key was last written from another partition, where no
                     `sequence_by` compares them: "stop" raises `KeyFromTwoPartitions`, "reject" sets it aside.
                     Default: "stop"

    `sequence_by` and `delete_when` are for a table with keys. Raises `ConfigError`.
    """

    when: str | None = None
    sequence_by: str | None = None
    delete_when: str | None = None
    reject_by: str | None = None
    deduplicate_by: str | None = None
    deduplicate_for: float | str | None = None
    on_two_partitions: str = "stop"

    def __post_init__(self) -> None:
        default_where_none(self)
        for name, expression in self.expressions().items():
            if not expression.strip():
                raise ConfigError(name, expression, "a Spark SQL expression", "Leave it out if there is none")
        check_deduplication(self.deduplicate_by, self.window())

    def expressions(self) -> dict[str, str]:
        """What is evaluated of each row, by the names of the settings; without those that are not given."""
        given = {name: getattr(self, name) for name in ("when", *_OF_KEYS, "reject_by")}
        return {name: expression for name, expression in given.items() if expression is not None}

    def window(self) -> float | None:
        """`deduplicate_for` in seconds. Raises `ConfigError`."""
        given = self.deduplicate_for
        return parse_duration(given, "deduplicate_for") if isinstance(given, str) else given

    def check_mode(self, mode: str) -> None:
        """Refuse, by setting name, expressions that a table of this mode does not use. Raises `ConfigError`."""
        for name, expression in self.expressions().items():
            if mode == "append" and name in _OF_KEYS:
                raise ConfigError(
                    name,
                    expression,
                    "mode append keeps every event as it is",
                    'Leave it out, or use mode="upsert" with keys',
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How rows are written: which columns, and how long a writer waits.

    keep               which of hub, partition, sequenceNumber and ownerLevel are stored as well. Default: none
    only_columns       the columns of the DataFrame that are stored. Default: all
    except_columns     columns of the DataFrame that are not stored: those that only `delete_when` or `sequence_by` is
                       about. Default: none
    unavailable_value  a text that stands in a column for the value that the row has: docs/reference/formats.md, on
                       Debezium. Default: none
    schema_evolution   "add": columns of the DataFrame that the table has not are added to it, empty for the rows that
                       are there. Default: they are refused
    timeout            seconds to wait for another writer of the database

    Raises `ConfigError`.
    """

    keep: Sequence[str] = ()
    only_columns: Sequence[str] = ()
    except_columns: Sequence[str] = ()
    unavailable_value: str | None = None
    schema_evolution: str | None = None
    timeout: float = 10.0

    def __post_init__(self) -> None:
        default_where_none(self)
        rule = "a number of seconds above zero"
        check_number("timeout", self.timeout, above=0, rule=rule, remedy="10 is the default")


@dataclass(frozen=True, slots=True)
class OwnershipRecords:
    """For `foreachBatch`: where it is recorded who owns the partitions of the hub that the query reads.

    store  the ownership store, or its URL
    group  the consumer group of the hub, as `hub.consumer_group(name)` gives it: its name is the table's
           `consumer_group`

    With them a zombie's batch is told from a store that was wiped; without, both are dropped with a warning. A batch of
    `MicroBatches` brings them with it. Raises `ConfigError`.
    """

    store: OwnershipStore | str
    group: ConsumerGroup

    def __post_init__(self) -> None:
        default_where_none(self)
        missing = [name for name in ("store", "group") if getattr(self, name) is None]
        if missing:
            raise ConfigError(
                missing[0],
                None,
                "store and group go together: the store is asked for the ownership records of the group",
                "Give both; the group is hub.consumer_group(name)",
            )
