"""Whose fault an error of a Postgres server is, as a verdict: it passes, a person has to mend it, or it is a row's.

Owns the line between the three, by the server's SQLSTATE, and the remedies. Pure. Named are the server's own troubles
and those of a table's definition, all that there are: the classes and codes of "PostgreSQL Error Codes", appendix A of
the manual (`src/backend/utils/errcodes.txt`), up to Postgres 18. Everything else is what one row has caused: codes that
triggers make up (`45000`), what functions in other languages raise (`38000`, and `XX000` of those in C that give no
code, as PostGIS for an invalid shape), a CASE without the value, a function that ends without RETURN.

1. Passes by itself: the connection, a transaction that was undone for others' sake, resources, an operator, the system
   below; a server that takes no writes now, and a lock or a transaction that took too long. A trigger that raises one
   of these codes asks to be tried again.
2. Has to be mended: what is named and not there, or not allowed, how objects and the server are set up, a disk that
   is full, sequences that are used up, files that are damaged. But it is the row's where a `RAISE` in PL/pgSQL gives
   the code, where a policy of row-level security refuses the row, and where a value is wrong in a language of its own
   (`to_tsquery`, `ltree`).

Codes do not tell these apart, so the server's function that has raised the error does; it is in no language.
"""

from __future__ import annotations

import psycopg

from leasehold.errors import Verdict

_PASSES = frozenset({"08", "40", "53", "57", "58", "72"})
_PASSES_TOO = frozenset({"25006", "25P03", "25P04", "55P03", "HV00N"})
"""Read only; idle in its transaction; a transaction too long; a lock; a foreign server that is not reached."""

_LASTS = frozenset({"25", "26", "28", "2D", "3B", "3D", "3F", "42", "55", "F0", "HV"})
"""Transactions and prepared statements, roles, what is named, how objects and the server are set up, foreign data."""
_FULL = "53100"
_DENIED = "42501"
_LASTS_TOO = frozenset({_FULL, "2200H", "53400", "58P01", "58P02", "58P03", "XX001", "XX002"})
"""A disk is full; a sequence is used up; a limit of the settings; a file that is not there, or twice; damage."""

_ROWS = frozenset({"40002"})
"""A constraint that fails at the end, in a class of others."""

_RAISE = "exec_stmt_raise"
_POLICY = "ExecWithCheckOptions"
_SQL = "scanner_yyerror"
_OLD_PLAN = "RevalidateCachedQuery"
_IDENTITY = "CheckCmdReplicaIdentity"

_PATH = (
    "A function of the table names it: in a trigger, an index, a default, a computed column, a CHECK or a policy. Let "
    "it name the schema too, or ALTER FUNCTION … SET search_path: the connection has no other than pg_catalog"
)


def passes(error: psycopg.Error) -> bool:
    """Whether the same may succeed later, with nothing mended: an outage."""
    code = error.sqlstate
    if code is None:  # of the client
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if error.diag.source_function == _OLD_PLAN:  # a table was altered since this session has met it
        return True
    return code in _PASSES_TOO or (code[:2] in _PASSES and code not in _LASTS_TOO | _ROWS)


def is_the_rows(error: psycopg.Error) -> bool:
    """Whether the row is to blame that the statement was about, and no other one."""
    code = error.sqlstate
    if code is None or code == _FULL or passes(error):
        return False
    if code not in _LASTS_TOO and (code[:2] not in _LASTS or code in _ROWS):
        return True
    raised_by = error.diag.source_function
    return raised_by in (_RAISE, _POLICY) or (code == "42601" and raised_by != _SQL)


def verdict_on(error: psycopg.Error) -> Verdict:
    """What an error of the server or of the driver asks for."""
    if passes(error):
        return Verdict.PASSES
    return Verdict.ROWS if is_the_rows(error) else Verdict.MEND


def is_full(error: psycopg.Error) -> bool:
    """Whether a disk of the server has no room left, or a trigger says so."""
    return error.sqlstate == _FULL


def is_denied(error: psycopg.Error) -> bool:
    """Whether this user lacks a right, and the server gives no hint of its own."""
    return error.sqlstate == _DENIED and not error.diag.message_hint


def in_a_function(error: psycopg.Error) -> bool:
    """Whether the error is of what a function runs, and not of the statement itself."""
    return bool(error.diag.context or error.diag.internal_query)


def remedy_of(error: psycopg.Error) -> str:
    """What to do about an error that lasts, as far as that is known; or else the server's hint."""
    code, hint = error.sqlstate, error.diag.message_hint
    if error.diag.source_function == _IDENTITY:
        return (
            "It is in a publication, whose subscribers could not tell which row is meant. Give the table a primary "
            "key, or ALTER TABLE … REPLICA IDENTITY USING INDEX (a unique index) or FULL, or take it out of the "
            "publication"
        )
    if code == "2200H":
        return (
            "Nothing was applied, and nothing is lost. Let the sequence go on: ALTER SEQUENCE … AS bigint, or with a "
            "higher MAXVALUE; and let its column be a bigint"
        )
    if code in ("42P01", "42883", "42704", "3F000") and in_a_function(error):
        return _PATH
    if code == _FULL:
        return "Make room on the server's disk: its tables, WAL or temporary files have none left"
    if is_denied(error):
        return "GRANT this user what it lacks: leasehold check names it; docs/bookkeeping.md lists all"
    return hint or ""
