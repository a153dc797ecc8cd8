"""A third party's sink that does what `Sink` says and nothing beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from leasehold.sinks.base import Features, Sink
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.sink import SqliteSink

OF_A_SINK = frozenset(
    {
        *("spec", "check", "apply", "identity", "row_count", "close"),
        *("watermarks", "raise_owner_levels", "check_watermarks", "set_watermarks"),
    }
)


class PlainSink:
    """The table in a SQLite file, with the methods of `Sink` alone."""

    features: Features = frozenset()

    def __init__(self, path: Path, spec: TableSpec) -> None:
        self._kept = SqliteSink(path, spec)

    def __getattr__(self, name: str) -> Any:
        if name in OF_A_SINK:
            return getattr(self._kept, name)
        raise AttributeError(name)


def plain(path: Path, spec: TableSpec) -> Sink:
    """A sink without features."""
    return cast("Sink", PlainSink(path, spec))
