"""Whether a row is to blame for an error of SQLite, and not the table, the file or the statement.

Owns the line between an event that is set aside and a pipeline that stops. A broken constraint is the row's, and so is
what a CHECK, a trigger, or an expression in an index or a column raises for its values, as `json_extract` does for text
that is no JSON. SQLite gives these the code of an error in SQL. A statement that names what is gone has the same code,
but fails when it is compiled: so it is compiled once more.

A column that rows have no values for takes what the table gives it, its default or NULL. Where the column, or a rule
about such columns alone, refuses that, each new row is refused, whatever is in it: that is the table's
(`refuse_own_columns`). SQLite names the rule in its message, whose words are put together here from the schema. It
names no foreign key, so it is looked up whether a default is in the table that it refers to.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

from leasehold.database.sqlite import primary_code
from leasehold.database.statements import quoted
from leasehold.sinks.rules.columns import own_columns_refused
from leasehold.sinks.rules.table_spec import folded

ROW_ERRORS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.OperationalError)
"""What may be a row's fault."""


def is_the_rows(
    connection: sqlite3.Connection, error: sqlite3.Error, statements: Iterable[tuple[str | None, int]]
) -> bool:
    """Whether one of `statements`, each with how many values it takes, failed for the values that it was given."""
    if not isinstance(error, sqlite3.OperationalError):
        return True
    if primary_code(error) != sqlite3.SQLITE_ERROR:
        return False
    try:
        for statement, values in statements:
            if statement is not None:
                connection.execute(f"EXPLAIN {statement}", [None] * values)
    except sqlite3.OperationalError:
        return False
    return True


_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|$)|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|\w+|\S""", re.DOTALL
)
_FOREIGN = """
SELECT id, "table", "from", coalesce("to", (SELECT name FROM pragma_table_info(its."table") WHERE pk = seq + 1))
FROM pragma_foreign_key_list(?) AS its
"""
"""The foreign keys of a table; one that names no column refers to the primary key."""


def refuse_own_columns(
    connection: sqlite3.Connection, table: str, value_columns: Collection[str], error: sqlite3.Error
) -> None:
    """Raise `SinkError` if an error that a row has met is the table's doing.

    `value_columns` are the columns that rows have values for.
    """
    known = {folded(name) for name in value_columns}
    columns = connection.execute("SELECT name, dflt_value, hidden FROM pragma_table_xinfo(?)", (table,)).fetchall()
    own = {name: default or "NULL" for name, default, hidden in columns if folded(name) not in known and not hidden}
    if own and (names := _Own(connection, table, own).refused(error)):
        raise own_columns_refused(table, names, str(error)) from error


class _Own:
    """The columns `own` of a table, with their defaults as SQL."""

    def __init__(self, connection: sqlite3.Connection, table: str, own: Mapping[str, str]) -> None:
        self._connection = connection
        self._own = own
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
        self._table: str
        self._made: str
        self._table, self._made = connection.execute(query, (table,)).fetchone() or (table, "")

    def refused(self, error: sqlite3.Error) -> list[str]:
        """Those that the table has refused by this error; none where a row has caused it."""
        said = str(error)
        for name, default in self._own.items():
            place = f"{self._table}.{name}"
            if said == f"NOT NULL constraint failed: {place}" and self._answer(f"SELECT ({default}) IS NULL"):
                return [name]
            if said.startswith("cannot store ") and said.endswith(f" column {place}") and not self._triggered:
                return [name]
        for names in self._rules(said):
            if names and self._own.keys() >= set(names):
                return names
        if isinstance(error, sqlite3.IntegrityError):
            return []
        return [name for name, default in self._own.items() if self._raises(default)]

    def _rules(self, text: str) -> Iterator[list[str]]:
        """The columns of each rule that this may have been said of; of checks of one name, those of all.

        None where a trigger may have brought a value of the row into its column. None of an index of some rows alone:
        other columns may say which.
        """
        run = self._connection.execute
        if text == "FOREIGN KEY constraint failed":
            yield from self._dangling()
        if self._triggered:
            return
        indexes = 'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial'
        for (index,) in run(indexes, (self._table,)).fetchall():
            names = [name for (name,) in run("SELECT name FROM pragma_index_info(?)", (index,))]
            if text == f"UNIQUE constraint failed: {', '.join(f'{self._table}.{name}' for name in names)}":
                yield names
        failed = "CHECK constraint failed: "
        checks = [condition for name, condition in checks_of(self._made) if text == f"{failed}{name or condition}"]
        yield [column for condition in checks for column in self._read_by(condition)]

    @cached_property
    def _triggered(self) -> bool:
        """Whether the table has a trigger."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE"
        return self._connection.execute(query, (self._table,)).fetchone() is not None

    def _read_by(self, condition: str) -> list[str]:
        """The columns in a condition."""
        with _noted(self._connection) as read:
            self._answer(f"EXPLAIN SELECT {condition} FROM {quoted(self._table)}")
        return [column for table, column in read if table == self._table]

    def _dangling(self) -> Iterator[list[str]]:
        """The columns of foreign keys whose defaults are not in the table that they refer to.

        But for those to the table itself: a row that comes later may bring what they refer to.
        """
        keys: dict[tuple[int, str], list[tuple[str, str]]] = {}
        for number, parent, mine, theirs in self._connection.execute(_FOREIGN, (self._table,)).fetchall():
            keys.setdefault((number, parent), []).append((mine, theirs))
        for (_, parent), pairs in keys.items():
            names = [mine for mine, _ in pairs]
            if self._own.keys() >= set(names) and folded(parent) != folded(self._table):
                some = " AND ".join(f"({self._own[name]}) IS NOT NULL" for name in names)
                there = " AND ".join(f"{quoted(theirs)} = ({self._own[mine]})" for mine, theirs in pairs)
                if self._answer(f"SELECT {some} AND NOT EXISTS (SELECT 1 FROM {quoted(parent)} WHERE {there})"):
                    yield names

    def _answer(self, query: str) -> object:
        """The first value that a query gives. None for one that does not compile, as with a default of a bare word."""
        try:
            return self._connection.execute(query).fetchone()[0]
        except sqlite3.Error:
            return None

    def _raises(self, default: str) -> bool:
        try:
            self._connection.execute(f"SELECT ({default})").fetchall()
        except sqlite3.Error as error:
            return "no such column" not in str(error)  # a word without quotes, which is a text there
        return False


def checks_of(statement: str) -> Iterator[tuple[str | None, str]]:
    """The name, if it has one, and the condition of each CHECK of a CREATE TABLE, as SQLite says them."""
    tokens = [token for token in _TOKEN.finditer(statement) if not token[0].startswith(("--", "/*"))]
    for place, token in enumerate(tokens[:-1]):
        if token[0].lower() != "check" or tokens[place + 1][0] != "(":
            continue
        depth = 0
        for end in tokens[place + 1 :]:
            depth += {"(": 1, ")": -1}.get(end[0], 0)
            if depth == 0:
                named = place > 1 and tokens[place - 2][0].lower() == "constraint"
                name = tokens[place - 1][0].strip("\"'`[]") if named else None
                yield name, statement[tokens[place + 1].end() : end.start()].strip()
                break


@contextmanager
def _noted(connection: sqlite3.Connection) -> Iterator[list[tuple[str, str]]]:
    """The tables and columns that statements read which are compiled in the block."""
    read: list[tuple[str, str]] = []

    def note(action: int, table: str | None, column: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_READ and table and column:
            read.append((table, column))
        return sqlite3.SQLITE_OK

    connection.set_authorizer(note)
    try:
        yield read
    finally:
        connection.set_authorizer(None)
