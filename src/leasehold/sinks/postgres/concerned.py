"""Which keys of a batch go row by row, found in staging before anything is written.

Owns the rule, as SQL. A key is concerned if any of its rows, not only the last, may break a rule of the table, or may
meet another key in one. Of a key that is not concerned the last row can be written at once, and the outcome is that of
writing them all, in order. It does no harm to take a key that was not: row by row is right for every key.

A key is concerned when one of its rows

1. is NULL in a column that is NOT NULL, does not fit the type or length, breaks a CHECK, may be too long for an index
   beside that of the keys, or may not fit its page, and a later row of the key replaces it;
2. has a value of another unique index that a second key has in the batch or the table: and then that key too;
3. meets, in an exclusion constraint, a row that a second key has in the batch or the table: and then that key too;
4. refers to what is not there, by a foreign key to another table;
5. deletes its entity, where another table refers to it, or where the entity comes again and has to begin anew, since
   the table has columns that rows have no values for.

All keys are, where it cannot be told from the rows: a rule is about columns that they do not have as well or that the
table computes, a column is of a domain, the table is a partition of another one or refers to itself, columns that
others refer to may change, or a condition raises an error for one of the rows (a division by zero, a cast).

A trigger that raises cannot be seen here: it makes the merge fail (`merging`).
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from leasehold.database.postgres.troubles import is_the_rows
from leasehold.database.statements import sent
from leasehold.sinks.postgres.catalog import Exclusion, ForeignKey, UniqueIndex
from leasehold.sinks.postgres.layout import SHORT, Layout
from leasehold.sinks.postgres.names import quoted
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.postgres.staging import APART, KEYS, STAGE, meeting
from leasehold.sinks.postgres.types import is_array

_BESIDE = 16


class Concerned:
    """Finds the concerned keys of one batch."""

    def __init__(self, session: PostgresSession, layout: Layout, *, deletes: bool) -> None:
        self._session = session
        self._layout = layout
        self._deletes = deletes
        values = ", ".join(
            f"{target.held(f's.c{place}')} AS {quoted(target.name)}" for place, target in enumerate(layout.targets)
        )
        self._rows = f'(SELECT s.kid AS "leasehold kid", {values} FROM {STAGE} AS s WHERE NOT s.gone) AS r'

    def set_apart(self) -> None:
        """Note the concerned keys among those set apart."""
        if self._all() or not self._found():
            self._note(f"SELECT kid FROM {KEYS}")

    def _found(self) -> bool:
        """Note those that the rows tell; nothing is noted, and False returned, if a condition raises an error."""
        try:
            with self._session.savepoint():
                for query in self._queries():
                    self._note(query)
        except psycopg.Error as error:
            if not is_the_rows(error):
                raise
            return False
        return True

    def _note(self, query: str) -> None:
        self._session.run(
            f"INSERT INTO {APART} (kid, lost) SELECT DISTINCT q.kid, false FROM ({query}) AS q(kid) "
            "WHERE q.kid IS NOT NULL ON CONFLICT DO NOTHING"
        )

    def _all(self) -> bool:
        layout, found = self._layout, self._layout.relation
        given, keys = layout.given, {key.name for key in layout.key_targets}
        if found.is_partition or any(column.is_domain and column.name in given for column in found.columns):
            return True
        generated = {column.name for column in found.columns if column.is_generated}
        ruled = {column.name for column in found.columns if column.not_null}
        ruled.update(*(check.columns for check in found.checks), *(index.columns for index in found.unique))
        ruled.update(*(rule.columns for rule in found.exclusions))
        if generated & ruled:
            return True
        if any(check.columns & given and not check.columns <= given for check in found.checks):
            return True
        if any(not index.plain and index.columns & given and not index.columns <= given for index in found.unique):
            return True
        if any(rule.columns & given and not rule.columns <= given for rule in found.exclusions):
            return True
        for key in found.foreign:
            columns = set(key.columns)
            if key.to_itself or (key.outgoing and columns & (given | generated) and not columns <= given):
                return True
            if not key.outgoing and columns & given and not columns <= keys:
                return True
        return False

    def is_any_alone(self) -> bool:
        """Whether a row breaks a rule by itself (rule 1), or that cannot be told. May raise what such a row raises."""
        return self._all() or any(self._session.one(f"SELECT EXISTS ({query})") for query in self._alone())

    def _alone(self) -> Iterator[str]:
        wrong = [*self._unfit(), *self._broken_checks()]
        if wrong:
            yield f'SELECT "leasehold kid" FROM {self._rows} WHERE {" OR ".join(wrong)}'
        if unfit := [*self._unfit_as_staged()]:
            yield f"SELECT s.kid FROM {STAGE} AS s WHERE NOT s.gone AND ({' OR '.join(unfit)})"
        if (wide := self._layout.may_outgrow_page("s")) is not None:  # if it does, the last one makes the merge fail
            yield (
                f"SELECT s.kid FROM {STAGE} AS s JOIN {KEYS} AS k ON k.kid = s.kid LEFT JOIN "
                f"{self._session.names.table} AS t ON {self._layout.is_row('s')} "
                f"WHERE NOT s.gone AND s.place <> k.place AND {wide}"
            )

    def _queries(self) -> Iterator[str]:
        yield from self._alone()
        for index in self._layout.relation.unique:
            yield from self._shared(index)
        for place, rule in enumerate(self._layout.relation.exclusions):
            if rule.columns <= self._layout.given:
                yield from self._meeting(place, rule)
        if self._deletes and not self._layout.gives_all:
            yield f"SELECT s.kid FROM {STAGE} AS s JOIN {KEYS} AS k ON k.kid = s.kid WHERE s.gone AND NOT k.gone"
        for key in self._layout.relation.foreign:
            if key.outgoing and set(key.columns) <= self._layout.given:
                yield self._dangling(key)
            elif not key.outgoing and self._deletes:
                yield f"SELECT s.kid FROM {STAGE} AS s WHERE s.gone"

    def _unfit(self) -> Iterator[str]:
        for target in self._layout.targets:
            if target.not_null:
                yield f"{quoted(target.name)} IS NULL"

    def _unfit_as_staged(self) -> Iterator[str]:
        for place, target in enumerate(self._layout.targets):
            if (fits := target.fits(f"s.c{place}")) is not None:
                yield f"NOT {fits}"
        keys: list[str] = []
        others: list[str] = []
        for place, target in enumerate(self._layout.targets):
            if target.name not in self._layout.relation.indexed:
                continue
            if is_array(target.carrier):  # in the column an element has at most these bytes beside its text
                others.append(f"coalesce(octet_length(s.c{place}::text) + {_BESIDE} * cardinality(s.c{place}), 0)")
            elif target.carrier in ("text", "bytea"):
                (keys if place in self._layout.keys else others).append(f"coalesce(octet_length(s.c{place}), 0)")
        if others:
            yield f"({' + '.join(others)} > {SHORT} OR {' + '.join([*keys, *others])} > {2 * SHORT})"

    def _broken_checks(self) -> Iterator[str]:
        for check in self._layout.relation.checks:
            if check.columns <= self._layout.given:
                yield f"NOT ({sent(check.condition)})"

    def _shared(self, index: UniqueIndex) -> Iterator[str]:
        """The keys whose values in this index another key has too, and those other keys."""
        given, keys = self._layout.given, self._layout.key_targets
        if index.plain and index.columns == {key.name for key in keys}:
            return
        elements = [sent(one) for one in index.elements]
        if index.plain:
            elements = [quoted(name) for name in sorted(index.columns & given)]
        if not elements or not index.columns & given:
            return
        wanted = [] if index.predicate is None else [f"({sent(index.predicate)})"]
        if not index.nulls_equal:
            wanted += [f"({element}) IS NOT NULL" for element in elements]
        where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
        values = ", ".join(f"({element}) AS v{place}" for place, element in enumerate(elements))
        names = ", ".join(f"v{place}" for place in range(len(elements)))
        equal = "IS NOT DISTINCT FROM" if index.nulls_equal else "="
        same = " AND ".join(f"b.v{place} {equal} t.v{place}" for place in range(len(elements)))
        batch = f'SELECT "leasehold kid" AS kid, {values} FROM {self._rows}{where}'
        both = same.replace("t.v", "shared.v")
        yield (
            f"SELECT b.kid FROM ({batch}) AS b JOIN (SELECT {names} FROM ({batch}) AS one GROUP BY {names} "
            f"HAVING min(kid) <> max(kid)) AS shared ON {both}"
        )
        yield self._held(f"({batch})", f"{values} FROM {self._session.names.table}{where}", same)

    def _held(self, batch: str, values: str, same: str) -> str:
        """The keys of the batch of which `b` is the same as what the table has of another key, and those others."""
        keys = self._layout.key_targets
        held = ", ".join(f"{quoted(key.name)} AS h{place}" for place, key in enumerate(keys, 1))
        mine = " AND ".join(f"t.h{place} = k.key_{place}" for place in range(1, len(keys) + 1))
        holder = " AND ".join(f"o.key_{place} = t.h{place}" for place in range(1, len(keys) + 1))
        held_by = ", ".join(f"t.h{place}" for place in range(1, len(keys) + 1))
        # Materialized: hardly any is left of these to be joined once more, which the server cannot know.
        return (
            f"WITH t AS MATERIALIZED (SELECT b.kid, {held_by} FROM {batch} AS b JOIN {KEYS} AS k ON k.kid = b.kid "
            f"JOIN (SELECT {held}, {values}) AS t ON {same} AND NOT ({mine})) "
            f"SELECT unnest(ARRAY[t.kid, o.kid]) FROM t LEFT JOIN {KEYS} AS o ON {holder}"
        )

    def _meeting(self, place: int, rule: Exclusion) -> Iterator[str]:
        """The keys of which a row meets one of another key in this exclusion constraint, and those other keys."""
        elements = [sent(one) for one in rule.elements]
        wanted = [f"{element} IS NOT NULL" for element in elements]
        if rule.predicate is not None:
            wanted.append(f"({sent(rule.predicate)})")
        where = f" WHERE {' AND '.join(wanted)}"
        values = ", ".join(f"{element} AS v{n}" for n, element in enumerate(elements))
        meet = " AND ".join(f"b.v{n} {sent(operator)} t.v{n}" for n, operator in enumerate(rule.operators))
        batch = meeting(place)
        self._session.run(f'INSERT INTO {batch} SELECT "leasehold kid", {values} FROM {self._rows}{where}')
        self._session.run(f"ANALYZE {batch}")
        yield (
            f"SELECT b.kid FROM {batch} AS b WHERE EXISTS (SELECT 1 FROM {batch} AS t WHERE {meet} AND t.kid <> b.kid)"
        )
        yield self._held(batch, f"{values} FROM {self._session.names.table}{where}", meet)

    def _dangling(self, key: ForeignKey) -> str:
        """The keys whose rows refer to what is not there; also those that say only a part of it."""
        columns = [quoted(name) for name in key.columns]
        some = " OR ".join(f"r.{column} IS NOT NULL" for column in columns)
        there = " AND ".join(
            f"other.{quoted(theirs)} = r.{mine}" for mine, theirs in zip(columns, key.referenced_columns, strict=True)
        )
        return (
            f'SELECT r."leasehold kid" FROM {self._rows} WHERE ({some}) '
            f"AND NOT EXISTS (SELECT 1 FROM {sent(key.referenced)} AS other WHERE {there})"
        )
