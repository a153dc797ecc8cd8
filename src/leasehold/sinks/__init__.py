"""Databases that hold the entity table together with the watermarks that fence it, found by URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.backends import load_backend
from leasehold.sinks.base import TableSpec

if TYPE_CHECKING:
    from leasehold.sinks.sqlite import SqliteSink

__all__ = ["BACKENDS", "TableSpec", "open_sink"]

BACKENDS = {"sqlite": "leasehold.sinks.sqlite:open_sqlite_sink"}


def open_sink(url: str, spec: TableSpec, *, base: Path | None = None, timeout: float = 10.0) -> SqliteSink:
    """Open the entity table `spec` in the database at `url`: `sqlite:///PATH`.

    Three slashes: PATH is relative to `base` (default: the working directory); four: it is absolute.
    `timeout` is the longest to wait for another writer, in seconds. Raises `ConfigError` for a URL that cannot
    be read.
    """
    opener = load_backend(url, "sink", BACKENDS, "leasehold.sinks")
    sink: SqliteSink = opener(url, spec, base or Path.cwd(), timeout)
    return sink
