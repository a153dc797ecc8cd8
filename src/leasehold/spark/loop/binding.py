"""Whose the consumer group is: tied to the table that a loop fills, before anything is written or recorded.

Owns when that is asked, once for a loop: with the first table that is to be filled, or, where a loop meets none, before
the first checkpoint, and then to the pipeline alone. Refuses a table of another pipeline or consumer group. What is
checked, and what is refused, is `leasehold.ownership.starting`'s.
"""

from __future__ import annotations

import logging
import threading
from functools import partial

from leasehold.errors import StoreError, Verdict
from leasehold.ownership.starting import check_spec, check_start, confirm, tie
from leasehold.spark.loop.pace import AWAY
from leasehold.spark.plan.share import Share
from leasehold.spark.table.of_loop import MetTable
from leasehold.stores import PipelineBinding
from leasehold.told import Outage

logger = logging.getLogger(__name__)


class Binding:
    """The tie of a loop's consumer group. `checked`: the start was checked before, for the loop's only table."""

    def __init__(self, share: Share, *, checked: bool) -> None:
        self._share, self._checked = share, checked
        self._met = self._tied = False

    def meet(self, table: MetTable) -> None:
        """Tie the group to the first table that is filled from it, and refuse one that belongs elsewhere."""
        check_spec(table.spec, self._share.options.pipeline, self._share.group)
        if self._met:
            return
        binding = PipelineBinding(table.spec.pipeline, table.identity())
        if self._checked:
            confirm(self._share.group, self._share.checkpoints, binding)
        else:
            marks = partial(table.watermarks, self._share.hub.identity)
            check_start(self._share.group, self._share.checkpoints, binding, marks, own=self._tied, claimed=True)
        self._met = True

    def before_record(self, stop: threading.Event) -> bool:
        """Tie the group to the pipeline alone, where no table has been met: what is recorded now is gone for others.

        Returns whether it is tied; not where the store is away until the stop. What is held stays held meanwhile.
        """
        outage = Outage(logger, "the batch is recorded when the store is there again: %s", "the batch is recorded")
        while not (self._met or self._tied):
            try:
                tie(self._share.group, self._share.checkpoints, self._share.options.pipeline)
                self._tied = True
                outage.note(None)
            except StoreError as error:
                if error.verdict is not Verdict.PASSES:
                    raise
                outage.note(error)
                if stop.wait(AWAY):
                    return False
        return True
