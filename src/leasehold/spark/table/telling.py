"""What is told of a batch that an entity table has applied: a notice with counts and times, and a warning.

Owns the clock around the table's transaction. The notice is told before anything else is done with the result, and only
of what was committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from leasehold.notices import Notice
from leasehold.printable import printable
from leasehold.sinks.base import LevelOf, Sink
from leasehold.sinks.notices import notice_of
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec

logger = logging.getLogger(__name__)


def apply_and_tell(sink: Sink, batch: Batch, level_of: LevelOf | None, tell: Callable[[Notice], None]) -> BatchResult:
    """Apply a batch, and tell what became of it and how long it took, with what was waited for."""
    started = time.monotonic()
    result = sink.apply(batch, level_of)
    tell(notice_of(sink, result, time.monotonic() - started))
    return result


def say_all_rejected(spec: TableSpec, batch: Batch, result: BatchResult) -> None:
    """Warn that not one row of a batch was good, with the first reason."""
    logger.warning(
        "table %s: all %d rows of a batch were rejected, and none was applied; %s has them, with the reasons%s",
        spec.called,
        result.rejected,
        spec.beside(spec.rejected),
        "" if batch.rejected is None else f" (the first: {printable(str(batch.rejected['reason'][0]))})",
    )
