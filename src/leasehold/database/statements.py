"""Statements that both databases read, as a driver takes them.

Owns the one form in which they are written: a parameter is `%(name)s`, and a percent sign that names no parameter
stands twice. psycopg takes them as they are; `native` turns them into the form of another driver. Pure.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_PARAMETER = re.compile(r"%(?:\((\w+)\)s|%)")


class Native(NamedTuple):
    """A statement for one driver, and the names of its parameters, each once.

    A session is given more values than a statement has parameters: where a driver refuses that, `names` says which to
    hand over.
    """

    text: str
    names: tuple[str, ...]


@lru_cache(maxsize=1000)
def native(statement: str, mark: str) -> Native:
    """The statement with parameters that begin with `mark` (`:` makes `:name`), and single percent signs."""
    names = dict.fromkeys(found[1] for found in _PARAMETER.finditer(statement) if found[1])
    return Native(_PARAMETER.sub(lambda found: f"{mark}{found[1]}" if found[1] else "%", statement), tuple(names))


def sent(sql: str) -> str:
    """SQL of the database's own making (a quoted name), to be put into a statement."""
    return sql.replace("%", "%%")


def unsent(sql: str) -> str:
    """What `sent` made of it, as the database's own again: for a message, or a statement without parameters."""
    return sql.replace("%%", "%")


def quoted(name: str) -> str:
    """The name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
