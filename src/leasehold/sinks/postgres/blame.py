"""Whether a row is to blame for an error that it met, or what its table gives each row by itself.

Owns that judgement, for the errors that are a row's by their code (`database.postgres.troubles`). A column that rows
have no values for takes what the table gives it: a default, a number of a sequence, NULL. Where the column, or a rule
about such columns alone, refuses that, each new row is refused, whatever is in it. So no event is rejected: the table
stops, and the error names the column. What a row brings, and what the table computes from that (a generated column, a
trigger), stays the row's.

A rule that is broken tells its columns. A type that does not take a value tells nothing (`integer out of range`), so
the defaults are tried by themselves, each in a column of its type. That takes a number of a sequence, unless it is only
to look: then the number is read that would come next, where this user may.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import psycopg

from leasehold.database.postgres.troubles import is_the_rows
from leasehold.database.statements import sent, unsent
from leasehold.sinks.postgres.catalog import Relation
from leasehold.sinks.postgres.names import quoted
from leasehold.sinks.postgres.session import PostgresSession, reason_of
from leasehold.sinks.rules.columns import own_columns_refused

_RULE = """
WITH its AS (SELECT oid FROM pg_class WHERE oid = to_regclass(%(told)s)
    AND to_regclass(%(table)s) IN (oid, pg_partition_root(oid)) AND NOT EXISTS (SELECT 1 FROM pg_trigger
      WHERE tgrelid IN (pg_class.oid, to_regclass(%(table)s)) AND NOT tgisinternal AND tgtype & 3 = 3)),
  rules AS (
    SELECT conkey AS numbers FROM pg_constraint JOIN its ON conrelid = its.oid
      WHERE conname = %(rule)s AND (contype = 'c' AND convalidated
        OR contype = 'f' AND confrelid NOT IN (its.oid, to_regclass(%(table)s)))
    UNION ALL SELECT (indkey::int2[])[0:indnkeyatts - 1] FROM pg_index JOIN its ON indrelid = its.oid
      JOIN pg_class AS index ON index.oid = indexrelid WHERE relname = %(rule)s AND indpred IS NULL
    UNION ALL SELECT ARRAY[attnum] FROM pg_attribute JOIN its ON attrelid = its.oid WHERE attname = %(column)s
    UNION ALL SELECT partattrs::int2[] FROM pg_partitioned_table JOIN its ON partrelid = its.oid
      WHERE %(rule)s::text IS NULL AND %(column)s::text IS NULL)
SELECT ARRAY(SELECT attname::text FROM unnest(numbers) AS number
  LEFT JOIN pg_attribute ON attrelid = (SELECT oid FROM its) AND attnum = number)
FROM rules WHERE cardinality(numbers) > 0
"""
"""The columns of what a row has broken, NULL for an expression; of the key of partitions, where no rule has a name.

Nothing where a trigger may have changed the row before; for an index of some rows alone, since other columns may say
which; and for a foreign key to the table itself, where another row may bring, or take away, what it refers to."""
_DEFAULTS = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod),
  coalesce(pg_get_expr(d.adbin, d.adrelid), pg_get_expr(t.typdefaultbin, 0), 'NULL')
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass(%(table)s) AND a.attname = ANY(%(own)s::text[]) AND a.attidentity = ''
  AND (d.oid IS NOT NULL OR t.typtype = 'd') ORDER BY a.attnum
"""
"""What the table gives those of its columns whose type may refuse it; an identity is of its column's type."""
_NEXT = re.compile(r"nextval\(('(?:[^']|'')*')::regclass\)")
_PEEK = (
    "(SELECT CASE WHEN is_called THEN last_value + seqincrement ELSE last_value END "
    "FROM {}, pg_sequence WHERE seqrelid = {}::regclass)"
)
"""The number that `_NEXT` would take, of the sequence of this name; and the name as a literal."""
_NO_LABEL = "enum_in"
"""The server's function that refuses a value which is no label of an enum."""
_BROKEN = "23"
"""The class of errors that name the rule which a row has broken."""


@dataclass(frozen=True, slots=True)
class _Default:
    """A column, its type as SQL, a domain's name too, and what the table gives it, as SQL."""

    name: str
    declared: str
    default: str


class Blame:
    """Judges errors of rows of `table`, in one transaction. `names` are the columns that rows have values for."""

    def __init__(self, session: PostgresSession, table: str, relation: Relation, names: Collection[str]) -> None:
        self._session = session
        self._name = table
        self._relation = relation
        self._table = session.names.of(table)
        self._own = {column.name for column in relation.columns if not column.is_generated} - {*names}

    def reason(self, error: psycopg.Error) -> str:
        """What the table says of a row that it has refused. The savepoint of the row is undone by now.

        Raises `error` where no row is to blame, and `SinkError` where the table itself is.
        """
        if not is_the_rows(error):
            raise error
        if self._own:
            if (columns := self._columns_of_its_own(error)) is not None:
                raise own_columns_refused(self._name, columns, reason_of(error)) from error
            if not self._names_a_rule(error):
                for column in self._defaults:
                    self._try(column, column.default)
        return f"{reason_of(error)}{self._labels(error)}"

    def _labels(self, error: psycopg.Error) -> str:
        """Which labels there are, where a value is none of them. The server names the type before the value."""
        if error.diag.source_function != _NO_LABEL:
            return ""
        said = reason_of(error)
        types = [(said.find(one.declared.removesuffix("[]")), one) for one in self._relation.columns if one.enum]
        named = [(at, -len(one.declared), one.enum) for at, one in types if at >= 0 and one.enum]
        if not named:
            return ""
        return f"; its labels are {min(named, key=lambda one: one[:2])[2].shown}"

    def look(self) -> None:
        """Raise `SinkError` where a column refuses its default. Takes no number, but where a function does."""
        known = {one.name: f"NULL::{sent(one.declared)}" for one in self._relation.columns if not one.drawn}
        for column in self._defaults:
            if (expression := self._without_drawing(column.default)) is not None:
                self._try(column, expression)
                known[column.name] = f"CAST({sent(expression)} AS {sent(column.declared)})"
        if self._relation.plain:  # no trigger changes them before a rule sees them
            self._look_at_rules({name: value for name, value in known.items() if name in self._own})

    def _look_at_rules(self, values: Mapping[str, str]) -> None:
        """Raise `SinkError` where a NOT NULL or a CHECK about these columns alone refuses their values, as SQL."""
        row = ", ".join(f"{value} AS {quoted(name)}" for name, value in values.items())
        needed = [one.name for one in self._relation.columns if one.not_null and one.name in values]
        rules = [(f"{quoted(name)} IS NOT NULL", [name]) for name in needed]
        rules += [(sent(one.condition), sorted(one.columns)) for one in self._relation.checks]
        for condition, columns in rules:
            if not columns or not values.keys() >= set(columns):
                continue
            if self._session.one(f"SELECT EXISTS (SELECT 1 FROM (SELECT {row}) AS given WHERE NOT ({condition}))"):
                raise own_columns_refused(self._name, columns, f"it is not {unsent(condition)}")

    @staticmethod
    def _names_a_rule(error: psycopg.Error) -> bool:
        return str(error.sqlstate).startswith(_BROKEN) and bool(error.diag.table_name)

    def _columns_of_its_own(self, error: psycopg.Error) -> list[str] | None:
        """The columns of the rule that was broken, if rows have values for none of them.

        None where a statement of a trigger has broken it, or one that a foreign key runs.
        """
        diag = error.diag
        if not self._names_a_rule(error) or diag.context:
            return None
        told = f"{quoted(diag.schema_name or '')}.{quoted(diag.table_name or '')}"
        for (columns,) in self._session.rows(
            _RULE,
            told=unsent(told),
            table=unsent(self._table),
            rule=diag.constraint_name,
            column=diag.column_name,
        ):
            if self._own.issuperset(columns):
                return list(columns)
        return None

    @cached_property
    def _defaults(self) -> list[_Default]:
        """The columns whose type may keep them from taking what the table gives them."""
        rows = self._session.rows(_DEFAULTS, table=unsent(self._table), own=sorted(self._own))
        return [_Default(*row) for row in rows]

    def _try(self, column: _Default, expression: str) -> None:
        """Raise `SinkError` if a column of this one's type does not take the value of `expression`.

        The columns are made once in a transaction, so that the catalogue does not grow with each row that is refused.
        """
        copy = f'pg_temp."leasehold own {self._oid}"'
        columns = ", ".join(f"{quoted(one.name)} {sent(one.declared)}" for one in self._defaults)
        self._session.run(f"CREATE TEMPORARY TABLE IF NOT EXISTS {copy} ({columns}) ON COMMIT DROP")
        try:
            with self._session.savepoint():
                self._session.run(f"INSERT INTO {copy} ({quoted(column.name)}) SELECT {sent(expression)}")
        except psycopg.Error as error:
            if not is_the_rows(error):
                raise
            said = f"{reason_of(error)} (DEFAULT {column.default})"
            raise own_columns_refused(self._name, [column.name], said) from error

    @cached_property
    def _oid(self) -> int:
        return int(self._session.one("SELECT to_regclass(%(table)s)::oid::bigint", table=unsent(self._table)))

    def _without_drawing(self, default: str) -> str | None:
        """The default, with the number that would come next in place of the one that is taken.

        None where that number cannot be read.
        """
        sequences = _NEXT.findall(default)
        if "nextval(" in _NEXT.sub("", default):
            return None
        for literal in sequences:
            if not self._session.one(f"SELECT has_sequence_privilege({sent(literal)}, 'SELECT')"):
                return None
        return _NEXT.sub(lambda found: _PEEK.format(found[1][1:-1].replace("''", "'"), found[1]), default)
