"""What orders the rows of an upserted table is part of the table.

Owns the rules of it, beside the memory of keys. That memory says of each key which event has written it last, in
terms of `sequence_by`: what one expression remembers says nothing to another, and older events would win, or none.

1. The expression (its text, whatever the white space), the kind of its values, and whether there is a `delete_when`
   are recorded with the first rows that are written.
2. A batch under another expression, without one, or with one where there was none, is refused; so is one with or
   without `delete_when` where it was the other way round. The condition itself may change.
3. A reading from the hub's beginning begins with no memory of keys, and with no record: it may have another order.
   Rows of the table stay, as they would where a table of someone else's is filled for the first time. So entities
   come out as their events say, deleted ones come back and are deleted again, and rows that no event is about are
   left alone. Events that the hub no longer has count no more.
4. A table whose entities are in several partitions (`TableSpec.spread`) is recorded with that, and refuses a batch
   without it, and the other way round.
5. What an earlier release or a writer without a `TableSpec.sequence_by` has left unsaid is recorded when it is said.

Does no I/O: what is recorded comes in as a value.
"""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.errors import ConfigError, SchemaMismatch
from leasehold.sinks.rules.table import TableSpec

_REMEDY = (
    "Use what it was. Or let all events be read anew: stop all instances and run `leasehold reset PIPELINE.toml "
    "--to earliest`, which forgets what is known of keys"
)


@dataclass(frozen=True, slots=True)
class TableOrder:
    """What decides which event of a key counts; what nobody has said is None.

    `expression` is that of `sequence_by`, `""` where there is none; `kind` is what its values are compared as.
    """

    expression: str | None
    kind: str | None
    deletes: bool | None

    def after(self, order: TableOrder) -> TableOrder:
        """Rules 1 and 5: what is recorded once rows were written in this `order`, which `check_order` has let pass."""
        return TableOrder(order.expression if self.expression is None else self.expression, order.kind, order.deletes)


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
            f"sequence_by gives a {order.kind}, and the table {spec.name} remembers a {recorded.kind} of each key, "
            f"which it cannot be compared with. Cast it to a {recorded.kind}"
        )
    if recorded.deletes is not None and recorded.deletes != order.deletes:
        was, now = ("with", "without") if recorded.deletes else ("without", "with")
        raise ConfigError(
            "delete_when", None, f"the table {spec.name} has been filled {was} it so far, and this is {now}", _REMEDY
        )


def _changed(spec: TableSpec, recorded: TableOrder, now: str | None) -> ConfigError:
    return ConfigError(
        "sequence_by",
        now or None,
        f"the table {spec.name} has been ordered {_words(recorded.expression)} so far, and is to be {_words(now)}: "
        "what it remembers of each key could not be compared",
        _REMEDY,
    )


def _words(expression: str | None) -> str:
    if expression is None:
        return "by an expression that its writer did not name"
    return f"by {expression}" if expression else "without sequence_by"
