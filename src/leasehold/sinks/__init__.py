"""Databases that hold the entity table together with the watermarks that fence it, found by URL.

`open_sink(url, spec)` maps the URL's scheme to a backend and imports it only then. Packages of others add schemes
through the entry point group `leasehold.sinks`: a callable `(url, spec, base, timeout) -> sink`. `Batch` needs PyArrow,
and is imported when it is first used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.backends import load_backend
from leasehold.config import check_seconds
from leasehold.sinks.base import Sink, TableContents
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult, RefusedRange, TableSpec

if TYPE_CHECKING:
    from leasehold.sinks.rules.batch import Batch

__all__ = [
    "Batch",
    "BatchResult",
    "RefusedRange",
    "Sink",
    "TableContents",
    "TableSpec",
    "Watermark",
    "open_sink",
]

BACKENDS = {
    "postgresql": "leasehold.sinks.postgres.sink:open_postgres_sink",
    "sqlite": "leasehold.sinks.sqlite.sink:open_sqlite_sink",
}


def open_sink(url: str, spec: TableSpec, *, base: Path | None = None, timeout: float = 10.0) -> Sink:
    """Open the entity table `spec` in the database at `url`: `sqlite:///PATH` or `postgresql://…`.

    Three slashes: PATH is relative to `base` (default: the working directory); four: it is absolute.
    `timeout` is the longest to wait for another writer, in seconds. Raises `ConfigError` for a URL that cannot
    be read, and `MissingDependency` without its driver.
    """
    check_seconds("timeout", timeout, or_zero=True)
    opener = load_backend(url, "sink", BACKENDS, "leasehold.sinks")
    sink: Sink = opener(url, spec, base or Path.cwd(), timeout)
    return sink


def __getattr__(name: str) -> object:
    if name != "Batch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from leasehold.sinks.rules.batch import Batch

    return Batch
