"""Asks a Postgres database for the rights of `operations.rights`: what a user lacks there, and what is missing.

Owns the way from a pipeline's URLs to that answer, and how it is said. Other databases have no rights to ask for.
Makes and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from leasehold.backends import masked
from leasehold.database.rights import OWNER, Right, by_thing, grants
from leasehold.errors import UsageError
from leasehold.operations.rights import DatabaseState, Use, named_tables, needed, shared_tables, tables_of
from leasehold.printable import counted


@dataclass(frozen=True, slots=True)
class UserRights:
    """What a use of a database needs, and has not.

    rights   the whole list
    lacking  those of it that `user` has not, on what is there
    absent   the tables and sequences that are missing, with the entity table
    creates  whether the user may make what is missing
    """

    shown: str
    user: str
    schema: str
    rights: tuple[Right, ...]
    lacking: tuple[Right, ...]
    absent: tuple[str, ...]
    creates: bool

    @property
    def needed(self) -> tuple[Right, ...]:
        """What is lacking, without the rights that a pipeline runs without."""
        return tuple(one for one in self.lacking if not one.spare)

    @property
    def is_ready(self) -> bool:
        """Whether the user has all that a run needs, or may make it."""
        return not self.needed and (self.creates or not self.absent)


def has_rights(url: str) -> bool:
    """Whether the database at this URL has rights that can be asked for."""
    return url.startswith("postgresql:")


def asked_for(url: str, use: Use, *, timeout: float, role: str | None = None) -> UserRights:
    """What the user of a `postgresql://` URL, or another `role`, has not of what a use needs.

    Raises `StoreUnavailable`, and `UsageError` where the user may not use the schema at all.
    """
    from leasehold.database.postgres import rights as there
    from leasehold.database.postgres.connections import Connection, Connections
    from leasehold.database.postgres.place import RELATIONS

    def ask(connection: Connection) -> UserRights:
        database, user = there.session_of(connection)
        schema, whose = connection.schema, role or user
        found = there.relations(connection, schema)
        own = named_tables(use, schema)
        place = DatabaseState(database, schema, found, there.referred(connection, own), there.drawn(connection, own))
        rights = needed(use, place)
        lacking, _ = there.missing(connection, rights, whose)
        names = (*tables_of(use), *(name for where, name in own[:1]))
        absent = tuple(name for name in names if name not in found)
        creates = there.may_create(connection, schema, whose)
        return UserRights(masked(url), whose, schema, tuple(rights), tuple(lacking), absent, creates)

    relations = RELATIONS if use.table is None else (*RELATIONS, *shared_tables())
    schema = "" if use.table is None else use.table.spec.schema or ""
    connections = Connections(url, timeout, lambda connection: None, relations=relations, schema=schema)
    try:
        return connections.run(ask)
    finally:
        connections.close()


def said_of(answer: UserRights, file: str) -> Iterator[tuple[str, str]]:
    """What the user lacks, each with what to do: one object a line. `file` names the pipeline file."""
    for thing, its in by_thing(answer.needed).items():
        rights = ", ".join(one.right for one in its)
        [grant] = grants(its, answer.user)
        yield f"the user {answer.user} has no {rights} on {thing}, which {its[0].why}", grant
    if answer.absent and not answer.creates:
        shown = ", ".join(answer.absent)
        said = f"{shown} {'is' if len(answer.absent) == 1 else 'are'} missing in the schema {answer.schema}"
        yield f"{said}, and the user {answer.user} may not make tables there", ways_to_make(file)


def ways_to_make(file: str) -> str:
    """How somebody makes what is missing who may."""
    return f"leasehold init {file} --as USER, who may; or leasehold init {file} --sql prints it for whoever does"


def notes_of(answer: UserRights) -> Iterator[str]:
    """What a run does without, and may come to need."""
    for one in answer.lacking:
        if one.spare and one.right == OWNER:
            yield (
                f"{one.thing} {one.why}, which only its owner may add, and {answer.user} is not: a run ends at such "
                "a column. Add it as the owner before, or let this user own the table: ALTER TABLE … OWNER TO"
            )
        elif one.spare:
            yield f"without {one.right} on {one.thing}, which {one.why}, Gone fails: {grants([one], answer.user)[0]}"


def check_reset_rights(uses: Sequence[tuple[str, Use]], file: str, *, timeout: float) -> None:
    """Refuse a reset where a right is missing, with all that is missing. Raises `UsageError`, with nothing changed.

    An entity table that was dropped, and the memory of its keys, are made again after the reset, and not before it.
    """
    told = []
    for url, use in uses:
        if has_rights(url):
            answer = asked_for(url, use, timeout=timeout)
            later = () if use.table is None else (use.table.spec.name, use.table.spec.memory)
            answer = replace(answer, absent=tuple(name for name in answer.absent if name not in later))
            told += [f"{said}. {remedy}" for said, remedy in said_of(answer, file)]
    if told:
        raise UsageError("nothing was changed: " + "; ".join(dict.fromkeys(told)))


def summary_of(answer: UserRights) -> str:
    """What is said where a run lacks nothing."""
    if answer.absent:
        missing = counted(len(answer.absent), "table")
        return f"the user {answer.user} may make the {missing} missing in the schema {answer.schema}"
    has = counted(len(answer.rights), "right")
    return f"the user {answer.user} has the {has} that a run needs in the schema {answer.schema}"
