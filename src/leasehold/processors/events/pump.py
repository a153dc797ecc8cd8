"""The thread that carries one partition's events to its handler, from the start handler to the stop handler.

Owns the processing tasks of one partition at one owner level: a task is what lies between a start handler and its
stop handler. Promises that handlers of a partition are called by one thread, one after another; that a handler which
runs is never interrupted; that a task which fails is reported and started again after a pause, until `restarts` gives
up; and that every ending takes the steps of `stopping`, in their order. What a handler raises that passes by itself is
retried for as long as the partition is held, and so is what a person has to mend, which the ownership record then says;
but before the first event has been processed, that ends the processor. Where the processor has an end to come to
(`available_now`), whatever is not retried ends it. One that means to end the program (`leaving`) is not retried either:
`leave` is told, and the partition is given up with it.

Concurrency: renewals are the dispatch thread's, so that a handler may take its time. If this thread stops for a
minute, others go on, and the partition stays held as long as the process renews it; if the process does, see
`partition_work`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from leasehold.errors import Verdict, is_waited_out, verdict_of
from leasehold.logs import about
from leasehold.notices import BatchDone, BatchRetried
from leasehold.processors.events.checkpointer import ProcessedEvent
from leasehold.processors.events.delivery import DeliverySettings, EventBatch
from leasehold.processors.events.handlers import Handlers
from leasehold.processors.events.hub_watch import Report
from leasehold.processors.events.leaving import means_to_leave
from leasehold.processors.events.partition_client import PartitionContext
from leasehold.processors.events.partition_work import PartitionWork, described
from leasehold.processors.events.restarts import Restarts
from leasehold.processors.events.stopping import EndingStep, StopReason, steps

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a task came to its end; `started` says whether its start handler returned."""

    reason: StopReason
    started: bool
    error: BaseException | None = None


class Pump:
    """Runs the tasks of one partition, until there is a reason to stop or to give it up."""

    def __init__(
        self,
        work: PartitionWork,
        handlers: Handlers,
        settings: DeliverySettings,
        report: Report,
        leave: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self._work = work
        self._leave = leave
        self._context = PartitionContext(work)
        self._handlers = handlers
        self._report = report
        self._has_end = settings.available_now
        self._restarts = Restarts(settings.attempts, settings.pauses)

    def run(self) -> None:
        """What the thread does."""
        with about(partition=self._work.partition):
            self._run_to_the_end()

    def _run_to_the_end(self) -> None:
        try:
            self._run()
        except Exception as error:
            logger.exception("the work on partition %s failed in an unexpected way", self._work.partition)
            self._report(error, self._work.partition)
            self._work.drain()
            self._work.let_go(described(error))
        finally:
            self._work.end()

    def _run(self) -> None:
        while True:
            ended = self._task()
            pause = None
            if ended.error is not None:
                self._report(ended.error, self._work.partition)
                verdict = verdict_of(ended.error)
                final = verdict is Verdict.GONE or ended.error is self._work.unrecordable
                refused = verdict is Verdict.MEND and (self._has_end or not self._work.ever_worked)
                if means_to_leave(ended.error) or (refused and ended.reason is StopReason.FAILED):
                    self._leave(ended.error)
                    final = True
                if ended.reason is StopReason.FAILED and not final:
                    waited = is_waited_out(ended.error, worked=True)
                    pause = self._restarts.failed(self._work.reached, transient=waited)
                if pause is None and self._has_end and ended.reason is StopReason.FAILED:
                    self._leave(ended.error)
            self._end(ended, again=pause is not None)
            if pause is None:
                return
            if ended.error is not None and verdict is Verdict.MEND:
                self._work.put_on_record(described(ended.error))
            self._work.tell(BatchRetried(type(ended.error).__name__, self._work.partition))
            reason = self._work.pause(pause)
            if reason is not None:
                self._end(_Ended(reason, started=False))
                return
            self._work.restart()

    def _task(self) -> _Ended:
        if (reason := self._work.stop_reason) is not None:
            return _Ended(reason, started=False)
        started = False
        try:
            self._work.confirm()
            if self._handlers.on_partition_start is not None:
                self._handlers.on_partition_start(self._context)
            started = True
            return _Ended(self._deliver(), started)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises, its partition is to be stopped
            return _Ended(self._work.stop_reason or StopReason.FAILED, started, error)

    def _deliver(self) -> StopReason:
        while (batch := self._work.receive(self._patience())) is not None:
            if batch:
                with about(batch=f"{batch.partition}/{batch.first}-{batch.last}"):
                    self._hand_out(batch)
            else:
                self._call_idle(batch)
            self._work.checkpoint_if_due()
        assert self._work.stop_reason is not None
        return self._work.stop_reason

    def _call_idle(self, nothing: EventBatch) -> None:
        """The call with an empty batch that was asked for, if it is due."""
        if self._handlers.on_events is not None and self._context.until_call() == 0.0:
            self._context.called()
            self._handlers.on_events(nothing, self._context)

    def _patience(self) -> float | None:
        """Seconds until there is something to do though nothing comes, None if there is not."""
        call = None if self._handlers.on_events is None else self._context.until_call()
        both = (self._work.until_checkpoint(), call)
        return min((each for each in both if each is not None), default=None)

    def _hand_out(self, batch: EventBatch) -> None:
        started = self._work.now
        self._call(batch)
        self._work.tell(BatchDone(len(batch), {"handle": self._work.now - started}))

    def _call(self, batch: EventBatch) -> None:
        if self._handlers.on_events is not None:
            self._context.called()
            self._handlers.on_events(batch, self._context)
            self._work.processed(
                ProcessedEvent(batch.last, batch.last_offset, {}, batch.last_enqueued), len(batch), batch_ended=True
            )
            return
        assert self._handlers.on_event is not None
        last = batch.last
        for event in batch:
            if not self._work.goes_on():
                return
            self._handlers.on_event(event, self._context)
            number = event.sequence_number
            self._work.processed(
                ProcessedEvent(number, event.offset, {}, event.enqueued_time), 1, batch_ended=number == last
            )
            self._work.checkpoint_if_due()

    def _end(self, ended: _Ended, *, again: bool = False) -> None:
        """Take the steps of the ending. A stop handler that raises leaves out the checkpoint."""
        work, told = self._work, True
        for step in steps(ended.reason, started=ended.started, again=again):
            match step:
                case EndingStep.DRAIN:
                    work.drain()
                case EndingStep.STOP_HANDLER:
                    told = self._tell(ended.reason)
                case EndingStep.CHECKPOINT if told:
                    work.record_owed()
                case EndingStep.RELINQUISH:
                    gave_up = ended.reason is StopReason.FAILED and ended.error is not None
                    said = described(ended.error) if gave_up and ended.error else ""
                    work.let_go(said, blameless=ended.error is not None and verdict_of(ended.error) is Verdict.MEND)
                case _:
                    logger.warning("partition %s: no checkpoint, since the stop handler failed", work.partition)

    def _tell(self, reason: StopReason) -> bool:
        """Call the stop handler. Returns whether it returned."""
        if self._handlers.on_partition_stop is None:
            return True
        self._work.touch()
        try:
            self._handlers.on_partition_stop(self._context, reason)
        except BaseException as error:  # noqa: BLE001 - as above: the steps after it are to be taken
            self._report(error, self._work.partition)
            if means_to_leave(error):
                self._leave(error)
            return False
        return True
