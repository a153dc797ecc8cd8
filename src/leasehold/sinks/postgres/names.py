"""What is called how: the tables of one entity table in one schema, quoted for SQL.

Every statement of the sink goes through the driver with parameters, so a percent sign in a name is doubled. Refuses a
name that Postgres would cut off: two tables would become one.
"""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.database.statements import quoted as as_identifier
from leasehold.database.statements import sent
from leasehold.errors import ConfigError
from leasehold.sinks.beside.tables import ALL_SHARED, ALWAYS
from leasehold.sinks.rules.table_spec import TableSpec

NEEDED = tuple(table.name for table in ALWAYS)
"""The tables without which there is no entity table in a schema."""

SHARED = tuple(table.name for table in ALL_SHARED)
"""The tables that all entity tables of a schema share."""

_LONGEST = 63
"""Bytes of a name."""

LONGEST_NAME = _LONGEST - len("leasehold_identity_")
"""Bytes that the name of an entity table may have, with the longest name made of it."""


def quoted(name: str) -> str:
    """The name as an SQL identifier, in a statement that is sent with parameters."""
    return sent(as_identifier(name))


def check_name(spec: TableSpec) -> None:
    """Refuse a name that is too long, and a schema that nobody's tables are in. Raises `ConfigError`."""
    schema = spec.called.schema
    if len(schema.encode()) > _LONGEST:
        rule, remedy = f"Postgres cuts names off after {_LONGEST} bytes", f"Name a schema of at most {_LONGEST} bytes"
        raise ConfigError("table", str(spec.called), rule, remedy)
    if schema.startswith("pg_") or schema == "information_schema":
        raise ConfigError("table", str(spec.called), f"the schema {schema} is the server's own", "Name another one")
    if len(spec.name.encode()) > LONGEST_NAME:
        raise ConfigError(
            "table",
            str(spec.called),
            f"Postgres cuts names off after {_LONGEST} bytes, and what is kept beside a table has its name in it",
            f"Choose a name of at most {LONGEST_NAME} bytes",
        )


@dataclass(frozen=True, slots=True)
class Names:
    """The qualified names, quoted. `key_columns` are those of the memory of keys."""

    schema: str
    spec: TableSpec

    def of(self, name: str) -> str:
        """A table of this name in the schema."""
        return f"{quoted(self.schema)}.{quoted(name)}"

    @property
    def table(self) -> str:
        return self.of(self.spec.name)

    @property
    def rejected(self) -> str:
        return self.of(self.spec.rejected)

    @property
    def memory(self) -> str:
        return self.of(self.spec.memory or "")

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(f"key_{place}" for place in range(1, len(self.spec.keys) + 1))
