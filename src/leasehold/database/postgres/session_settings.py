"""What a session of a Postgres server is set to, whatever the role, the database, the URL and the environment say.

Owns the settings that statements of stores and sinks rely on, and the way in which they are set. Promises that a
session that is handed on has them all, or else an error that names the one that it may not have. A role or a database
(`ALTER ROLE … SET`) can have any setting of its own, with which names come back in quotes, NULL in an array becomes a
word, a table that has policies cannot be read, and foreign keys are not looked at.

They are set after connecting, and so are the `options` of the URL: a pooler in between (PgBouncer) takes no such
parameter at the start. `options` override what a role has, and what is relied on overrides them.

A role that is read only by default (`default_transaction_read_only`) writes all the same: what it may not write, its
rights say. A database or a server that is read only by default has been made so by somebody who does not want it
written for now, as before a move to another server, or where its disk is nearly full. That is respected, as an outage.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import psycopg

from leasehold.database.postgres.troubles import passes
from leasehold.errors import UsageError

ENCODING = "UTF8"
"""Of what is sent and copied."""

_RELIED_ON = {
    "client_encoding": ENCODING,  # also where the URL, PGCLIENTENCODING, PGOPTIONS or the role say another
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",  # or types and columns have other names in the catalogue's words
    "array_nulls": "on",  # or NULL in an array is a text
    "transform_null_equals": "off",
    "row_security": "on",  # or a table with policies is not read at all
    "bytea_output": "hex",
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "jit": "off",
}
_NOT_EVERYWHERE = {"idle_session_timeout": "0", "transaction_timeout": "0"}
"""Times after which the server ends what the time-outs of a call end already. Postgres 14 and 17 have brought them."""
_UNLESS_STATED = {"lock_timeout": "0"}
"""What a role may not say, and the URL may."""

_SET = """
SELECT pg_catalog.count(pg_catalog.set_config(name, value, false))
FROM pg_catalog.json_each_text(%s::pg_catalog.json) AS given(name, value)
WHERE name <> ALL (%s::pg_catalog.text[]) OR pg_catalog.current_setting(name, true) IS NOT NULL
"""
_MEND = """
SELECT pg_catalog.set_config(name, wanted, false)
FROM (VALUES ('synchronous_commit', 'off', 'on'), ('session_replication_role', 'replica', 'origin'))
  AS mended(name, wrong, wanted)
WHERE pg_catalog.current_setting(name) = wrong
"""
"""What is committed is on disk, and the table's foreign keys and triggers count. The second takes a right to be set."""
_READ_ONLY = """
SELECT setting = 'on', CASE WHEN EXISTS (
    SELECT FROM pg_catalog.pg_db_role_setting JOIN pg_catalog.pg_database ON pg_database.oid = setdatabase,
      pg_catalog.unnest(setconfig) AS stated
    WHERE datname = pg_catalog.current_database() AND setrole = 0
      AND stated ~* '^default_transaction_read_only=(on|t|y|1)') THEN 'database' ELSE source END
FROM pg_catalog.pg_settings WHERE name = 'default_transaction_read_only'
"""
"""A role's own default hides the one of its database."""
_OF_A_ROLE = ("user", "database user", "client", "session")
"""Where `pg_settings` says that a setting of a role, or of this connection, comes from."""


def settings_of(own: Mapping[str, str], timeout: float) -> dict[str, str]:
    """All settings of a session, of which `own` are the URL's, where a call takes at most `timeout` seconds."""
    milliseconds = str(max(1, math.ceil(timeout * 1000)))
    timeouts = {"statement_timeout": milliseconds, "idle_in_transaction_session_timeout": milliseconds}
    return {**_UNLESS_STATED, **own, **_RELIED_ON, **_NOT_EVERYWHERE, **timeouts}


def set_up(connection: psycopg.Connection[Any], settings: Mapping[str, str], shown: str) -> None:
    """Give the session these settings, and mend what is wrong of its own.

    Raises `UsageError`, which names it, for one that it may not have.
    """
    try:
        connection.execute(_SET, [json.dumps(settings), [*_NOT_EVERYWHERE]])
        connection.execute(_MEND)
    except psycopg.Error as error:
        if passes(error):
            raise
        raise UsageError(
            f"{shown}: the session cannot be set to what its statements rely on and the URL's options say: "
            f"{error.diag.message_primary}. Correct the options of the URL, PGOPTIONS, or what the role has "
            "(ALTER ROLE … RESET …); or let the role set it: GRANT SET ON PARAMETER … TO it"
        ) from error


def read_only_by(connection: psycopg.Connection[Any]) -> str | None:
    """Whose default keeps this session of a primary server from writing, in the server's words; None for its role's."""
    [[read_only, source]] = connection.execute(_READ_ONLY).fetchall()
    return str(source) if read_only and source not in _OF_A_ROLE else None


def split_options(options: str) -> tuple[dict[str, str], str]:
    """The settings in libpq's `options` (`-c name=value`, `--name=value`, a backslash before a blank), and the rest."""
    words = [re.sub(r"\\(.)", r"\1", word) for word in re.findall(r"(?:\\.|[^\s\\])+", options)]
    settings = {}
    while words:
        word = words.pop(0)
        if word == "-c" and words:
            word += words.pop(0)
        stated = re.fullmatch(r"(?:-c|--)\s*([\w.-]+)=(.*)", word, re.DOTALL)
        if stated is None:
            return {}, options
        settings[stated[1].replace("-", "_")] = stated[2]
    return settings, ""
