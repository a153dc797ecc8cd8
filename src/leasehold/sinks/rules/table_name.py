"""How a table is called: by its name, and where a database has schemas by its schema as well.

Owns the text form, for entity tables and related ones, and does no I/O:

    flights             in the schema that the connection leads to
    sales.flights       in the schema sales
    "My.Schema"."t"     a part in double quotes may have dots; a double quote in it is written twice
    "sales.flights"     one table's name, with a dot in it

Each part is taken as it is written, with its capital letters, in quotes or not. Refuses any other text and, for a
database without schemas, one that names a schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from leasehold.errors import ConfigError

_PART = r'"(?:[^"]|"")+"|[^."][^.]*'
_TEXT = re.compile(rf"(?:({_PART})\.)?({_PART})")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's name and its schema; with an empty one, the schema is the one that somebody else chooses."""

    name: str
    schema: str = ""

    @classmethod
    def parse(cls, text: str, field: str = "table") -> TableName:
        """Read the text form; `field` names the setting in the error. Raises `ConfigError`."""
        return _parsed(text, field)

    @property
    def parts(self) -> tuple[str, ...]:
        """Schema, if there is one, and name."""
        return (self.schema, self.name) if self.schema else (self.name,)

    def without_schema(self, database: str, field: str = "table") -> str:
        """The name alone, for a `database` that has no schemas. Raises `ConfigError`."""
        if self.schema:
            quoted = str(TableName(f"{self.schema}.{self.name}"))
            raise ConfigError(
                field,
                str(self),
                f"{database} has no schemas, and a dot stands between schema and table",
                f"Leave {self.schema} out; or, if the dot belongs to the name, quote it: {field} = '{quoted}'",
            )
        return self.name

    def __str__(self) -> str:
        return ".".join(map(_written, self.parts))


@lru_cache(maxsize=512)
def _parsed(text: str, field: str) -> TableName:
    found = _TEXT.fullmatch(text)
    parts = [_meant(part) for part in found.groups() if part is not None] if found else []
    if not parts or not all(part.strip() for part in parts):
        raise ConfigError(
            field,
            text,
            "a table is NAME or SCHEMA.NAME, and a part that has a dot, or begins with a double quote, is in double "
            "quotes",
            'For example flights, sales.flights or "My.Schema".flights; a double quote within quotes is written twice',
        )
    return TableName(parts[-1], parts[0] if len(parts) > 1 else "")


def _meant(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _written(part: str) -> str:
    plain = "." not in part and not part.startswith('"')
    return part if plain else '"' + part.replace('"', '""') + '"'
