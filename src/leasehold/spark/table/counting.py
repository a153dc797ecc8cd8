"""What has become of the batches of one table so far, and a word where nothing but rejected rows come out.

Owns the sum. Any number of threads may add to it.
"""

from __future__ import annotations

import threading

from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec, Totals
from leasehold.spark.table.telling import say_all_rejected


class Counting:
    """The totals of the table of `spec`."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._totals = Totals()
        self._only_rejects = False
        self._lock = threading.Lock()

    @property
    def totals(self) -> Totals:
        """The sum so far."""
        with self._lock:
            return self._totals

    def add(self, result: BatchResult, batch: Batch) -> BatchResult:
        """Add what has become of `batch`, and warn of the first of those that were rejected whole."""
        with self._lock:
            self._totals = self._totals.with_batch(result)
            began, self._only_rejects = self._only_rejects, result.only_rejects
        if result.only_rejects and not began:
            say_all_rejected(self._spec, batch, result)
        return result
