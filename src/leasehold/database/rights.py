"""Rights on what is in a database, as values, and the GRANT that gives them.

Owns how a right is written in SQL and said to people. Pure. Which ones a pipeline needs is `operations.rights`; which
of them a user has, the database's own package asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from leasehold.database.statements import quoted

Kind = Literal["DATABASE", "SCHEMA", "TABLE", "SEQUENCE"]

OWNER = "OWNER"
"""In place of a right: what only a member of the role that owns the object may do. No GRANT gives it."""


@dataclass(frozen=True, slots=True)
class Thing:
    """What a right is on. `schema` is empty for a database and for a schema itself."""

    kind: Kind
    name: str
    schema: str = ""

    @property
    def sql(self) -> str:
        """Its name as SQL."""
        return f"{quoted(self.schema)}.{quoted(self.name)}" if self.schema else quoted(self.name)

    def __str__(self) -> str:
        return f"the {self.kind.lower()} {self.schema}{'.' if self.schema else ''}{self.name}"


@dataclass(frozen=True, slots=True)
class Right:
    """One right on one object, and why it is needed, to stand behind the object's name.

    Without one that is `spare` a pipeline runs, and something that it may come to do fails.
    """

    thing: Thing
    right: str
    why: str
    spare: bool = False


def by_thing(rights: Iterable[Right]) -> dict[Thing, list[Right]]:
    """The rights by what they are on, each once."""
    found: dict[Thing, dict[str, Right]] = {}
    for one in rights:
        found.setdefault(one.thing, {}).setdefault(one.right, one)
    return {thing: list(named.values()) for thing, named in found.items()}


def grants(rights: Iterable[Right], role: str) -> list[str]:
    """The statements that give these rights to a role. Tables of which it gets the same stand in one."""
    alike: dict[tuple[str, str], list[str]] = {}
    for thing, its in by_thing(rights).items():
        if given := [one.right for one in its if one.right != OWNER]:
            alike.setdefault((thing.kind, ", ".join(given)), []).append(thing.sql)
    return [
        f"GRANT {given} ON {'' if kind == 'TABLE' else f'{kind} '}{', '.join(names)} TO {quoted(role)}"
        for (kind, given), names in alike.items()
    ]
