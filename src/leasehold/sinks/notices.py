"""What is told of a batch that was applied, to one table or to several in one transaction.

Owns the notice's words. Pure.
"""

from __future__ import annotations

from leasehold.notices import TableApplied
from leasehold.sinks.base import Sink
from leasehold.sinks.rules.table_spec import BatchResult


def notice_of(sink: Sink, result: BatchResult, seconds: float) -> TableApplied:
    """What became of a batch at the tables of `sink`, whose transaction took so long."""
    names = ", ".join(str(one.spec.called) for one in sink.tables)
    of_tables = {name: one.counts for name, one in result.of_tables.items()}
    return TableApplied(names, result.counts, seconds, result.seconds, of_tables)
