"""What a transform in SQL picks of events, where it only picks and renames columns; and values of rows of that kind.

Owns which text is simple enough to need no Spark, and that such a text means here what it means in Spark: names are
compared without regard to case, a text in double quotes is a string, a comparison with null is null. Refuses by name
whatever is more than that. SQL is parsed by sqlglot, in Spark's dialect. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.errors import ConfigError, MissingDependency
from leasehold.printable import shortened
from leasehold.sinks.rules.table_spec import folded

VIEW = "events"
_SHOWN = 80  # characters of what is refused
ON_SPARK = "run it on Spark: leasehold run without --no-spark"
"""What else is to be done about what is refused here."""
_CLAUSES = {"from", "from_", "expressions"}
"""Parts of a query that a projection has; the first two are one, by the version of the parser."""


@dataclass(frozen=True, slots=True)
class Projection:
    """Columns of events, as `(column, name)`: each under the name that it gets."""

    picks: tuple[tuple[str, str], ...]

    def of(self, events: pa.Table) -> pa.Table:
        """The rows for these events."""
        columns = [events.column(column) for column, _ in self.picks]
        return pa.Table.from_arrays(columns, names=[name for _, name in self.picks])

    def schema(self, events: pa.Schema) -> pa.Schema:
        """The columns of the rows, for events of this schema."""
        return pa.schema([events.field(column).with_name(name) for column, name in self.picks])


@dataclass(frozen=True, slots=True)
class RowValue:
    """A value of each row: that of a column, or, where `literal` is not None, whether the column equals it."""

    column: str
    literal: str | int | bool | None = None

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        """The values of these rows."""
        values = rows.column(self.column)
        if self.literal is None:
            return values
        if pa.types.is_integer(values.type):
            values = values.cast(pa.int64())
        return pc.equal(values, pa.scalar(self.literal, values.type))


def read_projection(sql: str | None, events: pa.Schema, *, setting: str = "transform.sql") -> Projection:
    """What `sql` picks of events with these columns; without it, all. Raises `ConfigError` that names `setting`."""
    if sql is None:
        return Projection(tuple((name, name) for name in events.names))
    reader = _Reader(sql, sql, setting, events.names)
    return Projection(tuple(reader.picks()))


def read_value(text: str, rows: pa.Schema, *, setting: str) -> RowValue:
    """A column, or `column = literal`, over rows of this schema. Raises `ConfigError` that names `setting`."""
    reader = _Reader(text, f"SELECT {text}", setting, rows.names)  # by itself `comment = 1` would be a statement
    value = reader.value()
    if value.literal is not None and not _fits(value.literal, rows.field(value.column).type):
        raise reader.refused(f"compares {value.column}, of type {rows.field(value.column).type}, with another type")
    return value


def _fits(literal: str | int | bool, type_: pa.DataType) -> bool:
    if isinstance(literal, bool):
        return bool(pa.types.is_boolean(type_))
    if isinstance(literal, int):
        return bool(pa.types.is_signed_integer(type_)) and -(2**63) <= literal < 2**63
    return bool(pa.types.is_string(type_))


class _Reader:
    """Reads `query` over columns of these names; `text` is what a person has written of it."""

    def __init__(self, text: str, query: str, setting: str, names: Iterable[str]) -> None:
        try:
            import sqlglot
            from sqlglot import exp
        except ModuleNotFoundError as error:
            raise MissingDependency(f"{setting} without Spark", "sql") from error
        self._text, self._setting, self._exp = text, setting, exp
        self._names = tuple(names)
        self._known = {folded(name): name for name in self._names}
        if "\\" in text:  # which escapes there are is not the same in each version of the parser
            raise self.refused("has a backslash")
        logging.getLogger("sqlglot").setLevel(logging.ERROR)  # what it warns of is refused below
        try:
            parsed = sqlglot.parse(query, read="spark")
        except sqlglot.errors.SqlglotError as error:
            raise ConfigError(
                setting, text, f"not SQL that can be read: {str(error).splitlines()[0]}", "Correct it"
            ) from None
        if len(parsed) != 1 or parsed[0] is None:
            raise self.refused("is not one statement")
        self._tree: Any = parsed[0]

    def refused(self, what: str) -> ConfigError:
        """The error for a text that `what` is said of."""
        return ConfigError(
            self._setting,
            self._text,
            f"it {what}. Without Spark a transform picks and renames columns, and a rule is a column, or column = "
            "literal",
            f"Leave it out, or {ON_SPARK}",
        )

    def picks(self) -> Iterable[tuple[str, str]]:
        """The columns of a query, and the names that they get."""
        query, exp = self._tree, self._exp
        if not isinstance(query, exp.Select):
            raise self.refused("is not a SELECT")
        if more := [name for name, part in query.args.items() if part and name not in _CLAUSES]:
            raise self.refused(f"has more than columns and a FROM: {more[0].rstrip('_').upper()}")
        view = self._view(query.find(exp.From))
        for one in query.expressions:
            if isinstance(one, exp.Alias) and not self._is_name(one.args.get("alias")):
                raise self.refused(f"has {shortened(one.sql('spark'), _SHOWN)}, which is more than a column and a name")
            if self._is_star(one, view):
                yield from ((name, name) for name in self._names)
            else:
                column = self._column(one.this if isinstance(one, exp.Alias) else one, view)
                # Without an alias the column is called as the query writes it, as in Spark.
                yield column, one.alias_or_name

    def value(self) -> RowValue:
        """The column that an expression names, or compares with a literal."""
        query, exp = self._tree, self._exp
        if not isinstance(query, exp.Select) or [name for name, part in query.args.items() if part] != ["expressions"]:
            raise self.refused("is more than a column")
        tree, *more = query.expressions
        if more:
            raise self.refused("is more than one column")
        if not isinstance(tree, exp.EQ):
            return RowValue(self._column(tree, ""))
        return RowValue(self._column(tree.this, ""), self._literal(tree.expression))

    def _view(self, source: Any) -> str:
        table = None if source is None else source.this
        if not isinstance(table, self._exp.Table) or folded(table.name) != VIEW:
            raise self.refused(f"does not read the view {VIEW}")
        if more := [name for name, part in table.args.items() if part and name not in ("this", "alias")]:
            raise self.refused(f"reads the view with {more[0]}")
        alias = table.args.get("alias")
        if alias is not None and (alias.args.get("columns") or not self._is_name(alias.this)):
            raise self.refused("gives the view's columns other names")
        return folded(str(table.alias_or_name))

    def _is_name(self, alias: Any) -> bool:
        """Whether an alias is a name, and nothing that is put in, or taken out of the column (`col:field`)."""
        return isinstance(alias, self._exp.Identifier) and bool(alias.name)

    def _is_star(self, expression: Any, view: str) -> bool:
        exp = self._exp
        of_view = isinstance(expression, exp.Column) and folded(expression.table) == view
        star = expression.this if of_view else expression
        return isinstance(star, exp.Star) and not any(star.args.values())

    def _column(self, expression: Any, view: str) -> str:
        exp = self._exp
        plain = isinstance(expression, exp.Column) and isinstance(expression.this, exp.Identifier)
        if not plain or folded(expression.table) not in ("", view) or expression.args.get("db"):
            raise self.refused(f"has {shortened(expression.sql('spark'), _SHOWN)}, which is more than a column")
        if (name := self._known.get(folded(expression.name))) is None:
            raise ConfigError(
                self._setting,
                self._text,
                f"{expression.name} is no column; these are: {', '.join(self._names)}",
                "Correct it",
            )
        return name

    def _literal(self, expression: Any) -> str | int | bool:
        exp = self._exp
        sign = -1 if isinstance(expression, exp.Neg) else 1
        bare = expression.this if sign < 0 else expression
        if isinstance(bare, exp.Boolean) and sign > 0:
            return bool(bare.this)
        if isinstance(bare, exp.Literal):
            if bare.is_string and sign > 0:
                return str(bare.this)
            if not bare.is_string and str(bare.this).isascii() and str(bare.this).isdigit():
                return sign * int(bare.this)
        raise self.refused(
            f"compares with {shortened(expression.sql('spark'), _SHOWN)}, which is no text, integer or boolean"
        )
