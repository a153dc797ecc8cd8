"""What orders the rows of an upserted table is part of the table.

Owns the rules of it, beside the memory of keys. That memory says of each key which event has written it last, in
terms of `sequence_by`: what one expression remembers says nothing to another, and older events would win, or none.

1. The expression (its text, whatever the white space), the kind of its values, and whether there is a `delete_when`
   are recorded with the first rows that are written.
2. A batch under another expression, without one, or with one where there was none, is refused; so is one with or
   without `delete_when` where it was the other way round. The condition itself may change.
3. A reading from the hub's beginning begins with no memory of keys, and with no record: it may have another order.
   Rows of the table stay, and count no more (rule 6). So entities come out as their events say, deleted ones come back
   and are deleted again, and rows that no event is about are left alone. Events that the hub no longer has count no
   more.
4. A table whose entities are in several partitions (`TableSpec.spread`) is recorded with that, and refuses a batch
   without it, and the other way round.
5. What a writer without a `TableSpec.sequence_by` has left unsaid is recorded when it is said.
6. A row may be there of whose key no event is remembered: the table was filled by somebody else before, or the memory
   was cleared. Where `sequence_by` names a column that rows are written to (`OwnValue`), the row's own value in it is
   what an event of the key is compared with, as if an event with this value had written the row: one with a lower value
   is superseded, deletes too, one with the same value wins, and NULL is below every value. From the first event of the
   key that counts, its memory is what is compared with, whatever others write into the row. After rule 3 rows do not
   count. Where `sequence_by` names no such column, a key without a memory takes any event.

Does no I/O: what is recorded comes in as a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from leasehold.errors import ConfigError, SchemaMismatch
from leasehold.sinks.rules.table_spec import TableSpec, folded

_REMEDY = (
    "Use what it was. Or let all events be read anew: stop all instances and run `leasehold reset PIPELINE.toml "
    "--to earliest`, which forgets what is known of keys"
)


@dataclass(frozen=True, slots=True)
class TableOrder:
    """What decides which event of a key counts; what nobody has said is None.

    `expression` is that of `sequence_by`, `""` where there is none; `kind` is what its values are compared as.
    `rows_count` says whether rows count whose keys are not remembered (rule 6).
    """

    expression: str | None
    kind: str | None
    deletes: bool | None
    rows_count: bool = True

    def after(self, order: TableOrder) -> TableOrder:
        """Rules 1 and 5: what is recorded once rows were written in this `order`, which `check_order` has let pass."""
        expression = order.expression if self.expression is None else self.expression
        return TableOrder(expression, order.kind, order.deletes, self.rows_count)

    @property
    def is_open(self) -> bool:
        """Whether no row has been written in any order yet."""
        return self.expression is None and self.kind is None and self.deletes is None


_BARE, _BACKQUOTED = re.compile(r"[A-Za-z_]\w*"), re.compile(r"`((?:[^`]|``)+)`")


@dataclass(frozen=True, slots=True)
class OwnValue:
    """The column by whose value a row counts while no event of its key is remembered, and the type of its values."""

    column: str
    type: pa.DataType


def own_value(spec: TableSpec, order: TableOrder, columns: Iterable[str], schema: pa.Schema) -> OwnValue | None:
    """Rule 6: by which of the `columns` that are written, of rows of this `schema`, rows count; None if they do not."""
    if spec.spread or order.kind is None or not order.rows_count:
        return None
    named = ordering_column(spec, columns)
    return None if named is None else OwnValue(named, schema.field(named).type)


def ordering_column(spec: TableSpec, columns: Iterable[str]) -> str | None:
    """The one of these columns that `sequence_by` names, None where it is another expression."""
    text = spec.sequence_by or ""
    if quoted := _BACKQUOTED.fullmatch(text):
        text = quoted[1].replace("``", "`")
    elif not _BARE.fullmatch(text):
        return None
    return next((name for name in columns if folded(name) == folded(text)), None)


def no_order(spec: TableSpec, own: OwnValue, value: object) -> SchemaMismatch:
    """The error for a row whose own value cannot be compared (rule 6)."""
    return SchemaMismatch(
        f"the table {spec.called} has a row with {value} in {own.column}, and no event of its key is remembered. "
        f"sequence_by names this column, and such a value cannot be compared with a {own.type}, so nobody can say "
        f"whether an event is later than the row. Write the column's values as Leasehold does (docs/table.md), or set "
        "them to NULL, by which every event is later"
    )


def unordered_rows(spec: TableSpec, rows: int) -> str:
    """What it means that a table has this many rows of whose keys no event is remembered, and that do not count."""
    return (
        f"{spec.called} has rows of whose keys no event is known yet ({rows:,}), and sequence_by ({spec.sequence_by}) "
        "names no column that is written: the first event of each of these keys replaces its row, even an event that "
        "is older than the row. Let sequence_by name a column of the table, if rows are to count by what they hold"
    )


def order_of(spec: TableSpec, kind: str | None, *, deletes: bool) -> TableOrder:
    """The order of a batch with values of this kind, None for no values. Raises `ConfigError`."""
    if spec.spread:
        return TableOrder(spec.order, None, deletes)
    if kind is None and spec.sequence_by is not None:
        raise ConfigError(
            "sequence_by", spec.sequence_by, "the batch brings no values of it", "Give Batch(sequence_by=…), one a row"
        )
    return TableOrder("" if kind is None else spec.sequence_by, kind, deletes)


def check_spec(recorded: TableOrder, spec: TableSpec) -> None:
    """Refuse another `sequence_by` than the table's as early as it can be told. Raises `ConfigError`."""
    if recorded.expression is not None and recorded.expression != spec.order:
        raise _changed(spec, recorded, spec.order)


def check_order(recorded: TableOrder, spec: TableSpec, order: TableOrder) -> None:
    """Rule 2. Raises `ConfigError`, and `SchemaMismatch` for values that cannot be compared with those remembered."""
    by_value = recorded.kind is not None
    if recorded.expression is not None or by_value:
        if by_value != (order.kind is not None):
            raise _changed(spec, recorded, order.expression)
        if recorded.expression is not None and recorded.expression != order.expression:
            raise _changed(spec, recorded, order.expression)
    if by_value and order.kind != recorded.kind:
        raise SchemaMismatch(
            f"sequence_by gives a {order.kind}, and the table {spec.called} remembers a {recorded.kind} of each key, "
            f"which it cannot be compared with. Cast it to a {recorded.kind}"
        )
    if recorded.deletes is not None and recorded.deletes != order.deletes:
        was, now = ("with", "without") if recorded.deletes else ("without", "with")
        raise ConfigError(
            "delete_when", None, f"the table {spec.called} has been filled {was} it so far, and this is {now}", _REMEDY
        )


def _changed(spec: TableSpec, recorded: TableOrder, now: str | None) -> ConfigError:
    return ConfigError(
        "sequence_by",
        now or None,
        f"the table {spec.called} has been ordered {_words(recorded.expression)} so far, and is to be {_words(now)}: "
        "what it remembers of each key could not be compared",
        _REMEDY,
    )


def _words(expression: str | None) -> str:
    if expression is None:
        return "by an expression that its writer did not name"
    return f"by {expression}" if expression else "without sequence_by"
