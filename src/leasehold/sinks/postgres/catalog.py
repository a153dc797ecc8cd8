"""What the catalogue says of an entity table: columns, constraints, indexes, and whether that has changed.

Owns the queries. Reads only. Expressions are as `pg_get_expr` writes them, with bare names of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from leasehold.database.postgres.place import UNLOGGED, check_relations
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.postgres.types import Enumeration

ROOM = 7900
"""Bytes of values with which a row fits its page of 8 kB, however many columns its header tells of."""
_POINTER, _PAGE = 24, 8192
"""Bytes that the longest values come to within a row, once they have left it; and of those that never leave it."""
_TABLE = """(SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = %(schema)s AND c.relname = %(name)s)"""

_COLUMNS = f"""
SELECT a.attname::text, CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod)
  ELSE format_type(a.atttypid, a.atttypmod) END, a.attnotnull OR t.typnotnull, a.atthasdef OR a.attidentity <> '',
  a.attgenerated <> '' OR a.attidentity = 'a', a.attgenerated <> '', t.typtype = 'd',
  coalesce((SELECT collisdeterministic FROM pg_collation WHERE oid = a.attcollation), true)
    AND 'bpchar'::regtype NOT IN (t.oid, t.typbasetype),
  a.attidentity <> '' OR (a.attgenerated = '' AND (
    coalesce(pg_get_expr(d.adbin, d.adrelid), t.typdefault, '') LIKE '%%nextval(%%' OR EXISTS (SELECT 1 FROM pg_depend
      WHERE (classid, objid) IN (('pg_attrdef'::regclass, d.oid), ('pg_type'::regclass, t.oid))
      AND refclassid = 'pg_proc'::regclass))),
  CASE WHEN a.attlen > 0 THEN (a.attlen + 7) / 8 * 8 WHEN a.attstorage = 'p' THEN {_PAGE} ELSE {_POINTER} END,
  (SELECT provolatile = 'i' FROM pg_proc WHERE pg_proc.oid = b.typinput),
  (SELECT oid::bigint FROM pg_type WHERE oid IN (b.oid, b.typelem) AND typtype = 'e'),
  ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid IN (b.oid, b.typelem) ORDER BY enumsortorder),
  a.attnum
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = coalesce(nullif(t.typbasetype, 0), t.oid)
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = {_TABLE} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

_CHECKS = f"""
SELECT pg_get_expr(conbin, conrelid), conkey::int[] FROM pg_constraint
WHERE conrelid = {_TABLE} AND contype = 'c' ORDER BY conname
"""

_INDEXES = f"""
SELECT i.indexrelid::regclass::text, i.indimmediate, pg_get_expr(i.indpred, i.indrelid),
  ARRAY(SELECT pg_get_indexdef(i.indexrelid, place, false) FROM generate_series(1, i.indnkeyatts) AS place
    ORDER BY place),
  (i.indkey::int[])[0:i.indnkeyatts - 1],
  ARRAY(SELECT DISTINCT refobjsubid FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = i.indexrelid
    AND refclassid = 'pg_class'::regclass AND refobjid = i.indrelid AND refobjsubid > 0),
  coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false)
FROM pg_index i WHERE i.indrelid = {_TABLE} AND i.indisunique AND i.indislive ORDER BY i.indexrelid
"""

_EXCLUSIONS = f"""
SELECT pg_get_expr(i.indpred, i.indrelid), m.amname::text, e.elements, e.operators, e.classes,
  ARRAY(SELECT DISTINCT refobjsubid FROM pg_depend WHERE refclassid = 'pg_class'::regclass
    AND refobjid = i.indrelid AND refobjsubid > 0 AND (classid = 'pg_class'::regclass AND objid = i.indexrelid
    OR classid = 'pg_constraint'::regclass AND objid = c.oid))
FROM pg_constraint c JOIN pg_index i ON i.indexrelid = c.conindid JOIN pg_class r ON r.oid = i.indexrelid
JOIN pg_am m ON m.oid = r.relam
CROSS JOIN LATERAL (SELECT
  array_agg(concat('(', pg_get_indexdef(i.indexrelid, place::integer, false), ')',
    (SELECT format(' COLLATE %%I.%%I', n.nspname, collname) FROM pg_collation
      JOIN pg_namespace n ON n.oid = collnamespace
      WHERE pg_collation.oid = (i.indcollation::oid[])[place::integer - 1])) ORDER BY place) AS elements,
  array_agg((SELECT format('OPERATOR(%%I.%%s)', n.nspname, oprname) FROM pg_operator
    JOIN pg_namespace n ON n.oid = oprnamespace WHERE pg_operator.oid = given.operator) ORDER BY place) AS operators,
  array_agg((SELECT format('%%I.%%I', n.nspname, opcname) FROM pg_opclass JOIN pg_namespace n ON n.oid = opcnamespace
    WHERE pg_opclass.oid = (i.indclass::oid[])[place::integer - 1]) ORDER BY place) AS classes
  FROM unnest(c.conexclop) WITH ORDINALITY AS given(operator, place)) AS e
WHERE c.conrelid = {_TABLE} AND c.conexclop IS NOT NULL ORDER BY c.oid
"""

_FOREIGN = f"""
SELECT conrelid = confrelid, conrelid = {_TABLE}, conkey::int[], confrelid::regclass::text,
  ARRAY(SELECT attname::text FROM unnest(confkey) WITH ORDINALITY AS k(number, place)
    JOIN pg_attribute ON attrelid = confrelid AND attnum = k.number ORDER BY k.place), confkey::int[]
FROM pg_constraint WHERE contype = 'f' AND (conrelid = {_TABLE} OR confrelid = {_TABLE}) ORDER BY oid
"""

_PLAIN = f"""
SELECT c.relkind = 'r' AND NOT c.relhassubclass AND NOT c.relispartition AND NOT EXISTS (SELECT 1 FROM pg_trigger
  WHERE tgrelid = c.oid AND NOT tgisinternal), c.relispartition FROM pg_class c WHERE c.oid = {_TABLE}
"""

_WATCHED = f"""
SELECT c.relrowsecurity OR c.relhasrules, EXISTS (SELECT 1 FROM pg_index i JOIN pg_class r ON r.oid = i.indexrelid
    JOIN pg_am m ON m.oid = r.relam WHERE i.indrelid = c.oid AND i.indislive
    AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR m.amname NOT IN ('btree', 'hash'))),
  ARRAY(SELECT DISTINCT number FROM pg_index, unnest(indkey::int[]) AS number
    WHERE indrelid = c.oid AND indislive AND number > 0)
FROM pg_class c WHERE c.oid = {_TABLE}
"""

_STATE = f"""
SELECT c.oid::text || c.relkind::text || c.relispartition::text || c.relrowsecurity::text || c.relhasrules::text ||
  (SELECT string_agg(concat_ws(',', a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.atthasdef, a.attidentity,
    a.attgenerated, a.attstorage), ';' ORDER BY a.attnum)
    FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0) ||
  coalesce((SELECT string_agg(concat_ws(',', indexrelid, indisvalid), ';' ORDER BY indexrelid) FROM pg_index
    WHERE indrelid = c.oid), '') ||
  coalesce((SELECT string_agg(oid::text, ';' ORDER BY oid) FROM pg_constraint
    WHERE conrelid = c.oid OR confrelid = c.oid), '') ||
  coalesce((SELECT string_agg(oid::text, ';' ORDER BY oid) FROM pg_trigger
    WHERE tgrelid = c.oid AND NOT tgisinternal), '') || c.relhassubclass::text ||
  c.relpersistence::text || CASE WHEN c.relhassubclass THEN coalesce({UNLOGGED.format(relation="c")}, '') ELSE '' END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = ANY(%(names)s::text[]) ORDER BY c.relname
"""

_LABELS = """
SELECT enumtypid::regtype::text, enumlabel::text FROM pg_enum WHERE enumtypid = ANY(%(enums)s::bigint[]::oid[])
ORDER BY enumtypid, enumsortorder
"""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column; `declared` is the type below a domain. `computed` ones cannot be given: those that are
    generated from others, and an identity that is always the table's.

    Values of `comparable` ones are equal only where they are the same. Those of `drawn` ones, where they are not given,
    are a sequence's next number, or may be: what somebody's function returns. A value takes `width` bytes of its row's
    page at most, with what stands before it so that it begins at a multiple of its size. A type that `reads_alike`
    makes the same value of a text in every session, so that a generated column may cast one. `enum` is the type of
    values, or of an array's elements, if that is an ENUM.
    """

    name: str
    declared: str
    not_null: bool
    has_default: bool
    computed: bool
    is_generated: bool
    is_domain: bool
    comparable: bool
    drawn: bool = False
    width: int = _POINTER
    reads_alike: bool = False
    enum: Enumeration | None = None

    @property
    def required(self) -> bool:
        """Whether each row has to give it a value."""
        return self.not_null and not self.has_default and not self.computed


@dataclass(frozen=True, slots=True)
class Check:
    """A CHECK constraint: its condition, and the columns in it."""

    condition: str
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index: what it is on, as SQL; `columns` are all that are in it, `plain` if it has nothing else."""

    name: str
    immediate: bool
    predicate: str | None
    elements: tuple[str, ...]
    plain: bool
    columns: frozenset[str]
    nulls_equal: bool


@dataclass(frozen=True, slots=True)
class Exclusion:
    """An exclusion constraint: no two rows have all elements in relation, each by its operator, as SQL.

    `columns` are all that are in it. An index by `method`, of these operator classes, finds those in relation.
    """

    predicate: str | None
    method: str
    elements: tuple[str, ...]
    operators: tuple[str, ...]
    classes: tuple[str, ...]
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key of the table, or to it. `referenced` is the other table as SQL, with its columns."""

    to_itself: bool
    outgoing: bool
    columns: tuple[str, ...]
    referenced: str
    referenced_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is; `plain` if it has no partitions, is none, and has no heirs and no triggers.

    `is_partition` if it is a partition of another table, whose bound is a rule.
    `ruled` if it has row security or a rule. `watched` if an index may refuse a row for more than the length of its
    values: one on an expression or a part of the table, or of another kind than btree and hash. `indexed` are the
    columns of all indexes.
    """

    columns: tuple[TableColumn, ...]
    checks: tuple[Check, ...]
    unique: tuple[UniqueIndex, ...]
    exclusions: tuple[Exclusion, ...]
    foreign: tuple[ForeignKey, ...]
    plain: bool
    is_partition: bool
    ruled: bool
    watched: bool
    indexed: frozenset[str]

    @property
    def fits_page(self) -> bool:
        """Whether every row does, whatever its values are."""
        return sum(column.width for column in self.columns) <= ROOM


def kind_of_relation(session: PostgresSession, name: str) -> str | None:
    """`relkind` of what has this name in the schema, None if there is nothing."""
    found = session.one(
        "SELECT c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %(schema)s AND c.relname = %(name)s",
        schema=session.names.schema,
        name=name,
    )
    return None if found is None else str(found)


def check_tables(session: PostgresSession, names: Sequence[str], shown: str) -> None:
    """Refuse, by a `UsageError`, relations that are no tables or somebody else's, before they are read."""
    check_relations(session.connection, session.names.schema, names, shown, partitioned=True)


def state_of(session: PostgresSession, names: Sequence[str]) -> tuple[str, ...]:
    """Differs once one of these tables has been made, dropped or altered in what a batch depends on."""
    rows = session.rows(_STATE, schema=session.names.schema, names=[*names])
    return tuple(str(row[0]) for row in rows)


def has_its_labels(session: PostgresSession, table: Relation) -> bool:
    """Whether the enums of the table's columns are called, and have the labels, that were read with it."""
    enums = {
        column.enum.oid: (column.declared.removesuffix("[]"), column.enum) for column in table.columns if column.enum
    }
    if not enums:
        return True
    labels = [(name, label) for _, (name, enum) in sorted(enums.items()) for label in enum.labels]
    return session.rows(_LABELS, enums=[*enums]) == labels


def relation(session: PostgresSession, name: str) -> Relation:
    """The table of this name in the schema, which is there."""
    it = {"schema": session.names.schema, "name": name}
    rows = session.rows(_COLUMNS, **it)
    columns = tuple(
        replace(TableColumn(*row[:-3]), enum=None if row[-3] is None else Enumeration(row[-3], tuple(row[-2])))
        for row in rows
    )
    numbered = {row[-1]: row[0] for row in rows}

    def named(numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(numbered[number] for number in numbers)

    ((plain, is_partition),) = session.rows(_PLAIN, **it)
    ((ruled, watched, indexed),) = session.rows(_WATCHED, **it)
    return Relation(
        columns,
        tuple(Check(text, frozenset(named(numbers or ()))) for text, numbers in session.rows(_CHECKS, **it)),
        tuple(_index(named, *row) for row in session.rows(_INDEXES, **it)),
        tuple(
            Exclusion(predicate, method, tuple(elements), tuple(operators), tuple(classes), frozenset(named(numbers)))
            for predicate, method, elements, operators, classes, numbers in session.rows(_EXCLUSIONS, **it)
        ),
        tuple(
            ForeignKey(to_itself, outgoing, named(mine if outgoing else theirs), table, tuple(others))
            for to_itself, outgoing, mine, table, others, theirs in session.rows(_FOREIGN, **it)
        ),
        plain,
        is_partition,
        ruled,
        watched,
        frozenset(named(indexed)),
    )


def _index(
    named: Callable[[Sequence[int]], tuple[str, ...]],
    name: str,
    immediate: bool,
    predicate: str | None,
    elements: Sequence[str],
    keys: Sequence[int],
    all_columns: Sequence[int],
    nulls_equal: bool,
) -> UniqueIndex:
    """`all_columns` are all columns that the index depends on: also those that it only carries along, by INCLUDE."""
    plain = 0 not in keys and predicate is None
    columns = frozenset(named([number for number in (*keys, *(() if plain else all_columns)) if number]))
    return UniqueIndex(name, immediate, predicate, tuple(elements), plain, columns, nulls_equal)
