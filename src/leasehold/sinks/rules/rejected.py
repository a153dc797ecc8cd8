"""A row that is set aside, as a value. The tables of rejected rows are a database's own."""

from __future__ import annotations

from typing import NamedTuple


class Rejected(NamedTuple):
    """A row that was set aside. `place` counts from 0; `source` is JSON."""

    hub: str
    partition: str
    sequence_number: int
    place: int
    body: object
    reason: str
    source: str | None
