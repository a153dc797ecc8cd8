"""What a store in SQL asks of its database: statements, and the records that they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = tuple[Any, ...]
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SqlStep:
    """A statement and the records that it is about, which it calls `name` (`Words.given`)."""

    statement: str
    records: Sequence[Values]
    name: str = "records"
