"""The database of a URL as another user finds it: for who makes tables there that the URL's own user is to use.

Owns the URL of the other user, who is led to the same schema: the search path is the one that the URL's own user, the
`role`, has. The password comes from libpq's environment. Refuses a user whose tables the role would not trust.
"""

from __future__ import annotations

import getpass
import os
import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import conninfo

from leasehold.backends import masked
from leasehold.database.postgres.azure_token import without_auth
from leasehold.database.postgres.connections import Connection, Connections
from leasehold.database.postgres.session_settings import split_options
from leasehold.errors import UsageError

_PATH = """
SELECT coalesce((SELECT substr(stated, 13) FROM pg_db_role_setting, unnest(setconfig) AS stated
    WHERE stated LIKE 'search_path=%%' AND setrole = (SELECT oid FROM pg_roles WHERE rolname = %(role)s)
      AND setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
    ORDER BY setdatabase DESC LIMIT 1),
  (SELECT CASE WHEN source IN ('user', 'database user', 'client', 'session') THEN boot_val ELSE reset_val END
    FROM pg_settings WHERE name = 'search_path')), EXISTS (SELECT 1 FROM pg_roles WHERE rolname = %(role)s)
"""
_TRUSTED = """
SELECT pg_get_userbyid(owner)::text, rolsuper OR owner = pg_roles.oid OR pg_has_role(%(role)s, current_user, 'MEMBER')
FROM pg_roles, (SELECT CASE WHEN pg_get_userbyid(nspowner) = 'pg_database_owner'::name
    THEN (SELECT datdba FROM pg_database WHERE datname = current_database()) ELSE nspowner END AS owner
  FROM pg_namespace WHERE nspname = %(schema)s) AS there
WHERE rolname = current_user
"""


def user_of(url: str) -> str:
    """The user that a `postgresql://` URL connects as."""
    stated = conninfo.conninfo_to_dict(without_auth(url)[0]).get("user")
    return str(stated or os.environ.get("PGUSER") or getpass.getuser())


def acting_as(url: str, user: str, role: str, timeout: float) -> str:
    """The URL by which `user` is led to where `role`, by the URL itself, is. Raises `UsageError`."""
    own, rest = split_options(_option(url, "options") or os.environ.get("PGOPTIONS", ""))
    if rest:
        raise UsageError(
            f"{masked(url)}: its options cannot be kept for another user. Write each of them as -c NAME=VALUE"
        )
    other = _with_user(url, user, own)
    if "search_path" not in own:
        own["search_path"] = _asked(other, role, timeout)
    own["search_path"] = own["search_path"].replace('"$user"', _quoted(role)).replace("$user", _quoted(role))
    return _with_user(url, user, own)


def check_trusted(connection: psycopg.Connection[Any], schema: str, role: str) -> None:
    """Refuse where what this session makes in a schema is nothing that the role would use. Raises `UsageError`."""
    found = connection.execute(_TRUSTED, {"role": role, "schema": schema}).fetchall()
    for owner, trusted in found:
        if not trusted:
            raise UsageError(
                f"the schema {schema} belongs to {owner}, and {role} would use no tables that another user has made "
                f"there. Name its owner, --as {owner}, or a superuser"
            )


def _asked(url: str, role: str, timeout: float) -> str:
    def ask(connection: Connection) -> str:
        [[path, there]] = connection.execute(_PATH, {"role": role}).fetchall()
        if not there:
            raise UsageError(f"{connections.shown}: there is no role {role}. CREATE ROLE, or name another: --grant-to")
        return str(path)

    connections = Connections(url, timeout, lambda connection: None, schema="pg_catalog")
    try:
        return connections.run(ask)
    finally:
        connections.close()


def _option(url: str, name: str) -> str:
    return dict(parse_qsl(urlsplit(url).query)).get(name, "")


def _with_user(url: str, user: str, settings: dict[str, str]) -> str:
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2]
    left_out = ("user", "password", "options", "passfile")
    options = [(name, value) for name, value in parse_qsl(parts.query) if name not in left_out]
    if settings:
        options.append(("options", " ".join(f"-c {name}={_escaped(value)}" for name, value in settings.items())))
    query = urlencode(options, quote_via=quote)
    return urlunsplit((parts.scheme, f"{quote(user, safe='')}@{hosts}", parts.path, query, ""))


def _escaped(value: str) -> str:
    """The value of a setting as a word of libpq's `options`."""
    return re.sub(r"([\s\\])", r"\\\1", value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
