"""Versions of tables: what leads from one to the next, which tables there should be, and what is said of others'
tables.

Owns the steps as data, for every store with tables, and the errors. Nobody may use tables of a newer release. Those of
an older one are brought up to date by who writes; who only reads is refused, since that would stop the instances of
the older release.

A step is a list of statements, each of them about one table, the first that it names. So a table that somebody has
removed is made again as it was at any version: by those statements of the steps so far that are about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from leasehold.errors import StoreError, StoreUnavailable, UsageError

Steps = Sequence[Sequence[str]]
"""Entry n leads from version n to version n + 1. An entry is never changed once it was released."""


def about(statement: str) -> str:
    """The table, or sequence, that a statement is about; `""` where it names none of ours."""
    found = re.search(r"leasehold_\w+", statement)
    return found[0] if found else ""


def tables(steps: Steps) -> tuple[str, ...]:
    """The tables that there are after these steps, in the order in which they are made."""
    return tuple(name for name in dict.fromkeys(about(statement) for step in steps for statement in step) if name)


def makings(steps: Steps, wanted: Iterable[str]) -> Iterator[str]:
    """The statements that make these tables as they are after the steps."""
    names = set(wanted)
    return (statement for step in steps for statement in step if about(statement) in names)


def newer(where: str, component: str, found: int, known: int) -> StoreError:
    """The error for tables that a newer release has made."""
    return StoreError(
        f"{where}: its tables for {component} have version {found}, and this release knows versions up to {known}: "
        "pip install --upgrade leasehold"
    )


def older(where: str, component: str, found: int, known: int) -> UsageError:
    """The error of who only reads, for tables that an older release has made."""
    return UsageError(
        f"{where}: its tables for {component} have version {found}, of an older release, and who only reads does not "
        f"change them. `leasehold init STORE_URL` brings them to version {known}, and so does the first instance of "
        "this release; those of the older one fail from then on, so stop them first. Until then use the older command"
    )


def removed(where: str, missing: Sequence[str]) -> UsageError:
    """The error of who only reads, where tables are missing."""
    return UsageError(
        f"{where}: {_are_gone(missing)}, and who only reads makes none. `leasehold init STORE_URL` makes what is "
        "missing again, empty, and so does the next instance that starts"
    )


def gone(where: str, missing: Sequence[str] = ()) -> StoreUnavailable:
    """The error of a store that has seen its tables before, and does not make empty ones behind its own back."""
    what = _are_gone(missing) if missing else "the tables of Leasehold are gone"
    return StoreUnavailable(
        f"{where}: {what}, and were there before (was the database restored?). `leasehold init STORE_URL` makes what "
        "is missing again, empty, and so does the next instance that starts"
    )


def _are_gone(missing: Sequence[str]) -> str:
    return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} gone"
