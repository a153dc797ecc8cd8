"""One worker's turn at an entity: its lease, the messages in hand, and those that are parked in the sink.

Owns the order: a parked message comes before all later ones of its entity. It is tried where it stands in the order, if
it is due; if it is not, what is behind it is parked too (`park`), or waits. Other rules are in `room` and
`sinks.beside.messages.parking`.

Who may be doing what at the same time: any number of processes at any line here with the same entity; the lease keeps
most of them out, the sink's transactions all. What happens when this thread stops for a minute (or for good):

    lease taken     it is renewed by the process's thread; a process that is paused loses it, and sees so in `work`
    tried           see `work`
    parked          the message is in the sink, and still in the queue: it comes again, and is found parked
    lease given back `kept_leases` gives it up soon; another holder reads what was committed
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leasehold.errors import LeaseholdError
from leasehold.processors.queues.content import ContentReader, Unfit, lease_key_of
from leasehold.processors.queues.kept_leases import KeptLeases
from leasehold.processors.queues.messages_in_hand import FAILED_REASON, Ending, HeldMessage, Start, TryResult
from leasehold.processors.queues.parked import message_of, parked_of
from leasehold.processors.queues.settings import BusyPolicy, QueueDelivery, pause
from leasehold.processors.queues.work import EntityHold, Work
from leasehold.runtime import Runtime
from leasehold.sinks.beside.messages.parking import ParkedMessage, ParkedMessages

logger = logging.getLogger(__name__)

Report = Callable[[Start, HeldMessage | None, TryResult], None]
"""Told of each try; of one at a parked message, or at an entity for its sake, without a message in hand."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn, and whom it reports to."""

    start: Start
    lease: EntityHold
    report: Report
    stopping: Callable[[], bool]


class MessageTurns:
    """What workers share. Used from any thread."""

    def __init__(
        self,
        queue: str,
        work: Work,
        reader: ContentReader,
        parking: ParkedMessages,
        *,
        settings: QueueDelivery,
        runtime: Runtime,
    ) -> None:
        self._queue, self._work, self._reader, self._parking = queue, work, reader, parking
        self._settings, self._clock, self._rng = settings, runtime.clock, runtime.rng

    def due(self, at_most: int) -> Mapping[str, tuple[Any, ...]]:
        """Entities whose parked messages are due, by the keys of their leases; none while the sink is away."""
        try:
            return {lease_key_of(key): key for key in self._parking.due(self._queue, at_most)}
        except LeaseholdError as error:
            self._work.away(error)
            return {}

    def take(self, start: Start, leases: KeptLeases, report: Report, stopping: Callable[[], bool]) -> None:
        """Under the entity's lease, work through the messages until one does not go on, and report each that was tried.

        Raises what no waiting mends, such as a table that has been altered.
        """
        first = start.held[0] if start.held else None
        try:
            lease = leases.take(start.key, start.ahead)
        except LeaseholdError as error:
            report(start, first, self._work.away(error))
            return
        if lease is None:
            self._busy(start, report)
            return
        try:
            turn = _Turn(start, lease, report, stopping)
            if self._through_held(turn) and start.parked is not None:
                self._through_parked(turn, start.parked, before=None)
        finally:
            leases.give_back(lease)

    def _through_held(self, turn: _Turn) -> bool:
        """Try the messages in hand, in their order; whether none of them is left."""
        rest = turn.start.held
        while rest:
            if turn.stopping() or not rest[0].trusted(self._clock.monotonic()):
                return False
            results = self._work.tried_together(rest, turn.lease, turn.stopping)
            for held, result in zip(rest, results, strict=False):
                ended = self._ended(turn, held, result)
                turn.report(turn.start, held, ended)
                if not ended.goes_on:
                    return False
            rest = rest[len(results) :]
        return True

    def _busy(self, start: Start, report: Report) -> None:
        if self._settings.busy is BusyPolicy.PARK:
            for held in start.held:
                result = self._parked(held, TryResult(Ending.BUSY))
                report(start, held, result)
                if not result.goes_on:
                    break
        elif start.held:
            report(start, start.held[0], TryResult(Ending.BUSY))
        if start.parked is not None:
            report(start, None, TryResult(Ending.BUSY))

    def _ended(self, turn: _Turn, held: HeldMessage, result: TryResult) -> TryResult:
        """What becomes of a message in hand that was tried; parked ones of its entity that are before it come first."""
        if result.ending is Ending.BEHIND and self._through_parked(turn, held.content.key, before=held):
            result = self._work.tried(held, turn.lease)
        if self._settings.busy is BusyPolicy.PARK and result.ending in (Ending.BEHIND, Ending.FAILED):
            result = self._parked(held, result)
        if self._is_last(held, result):
            try:  # it may have come again; the queue's dead letters have it now
                self._parking.remove(self._parked_of(held))
            except LeaseholdError as error:
                return self._work.away(error)
        return TryResult(Ending.BUSY) if result.ending is Ending.BEHIND else result

    def _is_last(self, held: HeldMessage, result: TryResult) -> bool:
        """Whether a message is going to be dead-lettered."""
        failed = result.ending is Ending.FAILED and held.delivery >= self._settings.max_deliveries
        return failed or result.ending is Ending.REJECTED

    def _parked_of(self, held: HeldMessage) -> ParkedMessage:
        message = held.message
        return parked_of(message, self._work.name_of(message), held.content.key)

    def _parked(self, held: HeldMessage, result: TryResult) -> TryResult:
        """Park a message in hand. One that has failed for the last time is left to be dead-lettered."""
        if self._is_last(held, result):
            return result
        failed = result.ending is Ending.FAILED
        parked = replace(self._parked_of(held), deliveries=held.delivery if failed else held.delivery - 1)
        try:
            if failed:
                result = self._put_after(self._parking, parked, result)
                return replace(result, ending=Ending.PARKED) if result.ending is Ending.FAILED else result
            return TryResult(Ending.PARKED if self._parking.park(parked) else Ending.REPEATED)
        except LeaseholdError as error:
            return self._work.away(error)

    def _put_after(self, parking: ParkedMessages, parked: ParkedMessage, result: TryResult) -> TryResult:
        """Keep a message after a try that failed, which `deliveries` counts; the result says for how long."""
        wait = pause(self._settings, parked.deliveries, self._rng) if result.after is None else result.after
        kept = parking.park(replace(parked, next_at=self._clock.wall() + wait, error=result.description))
        return replace(result, after=wait) if kept else TryResult(Ending.REPEATED)

    def _through_parked(self, turn: _Turn, key: tuple[Any, ...], *, before: HeldMessage | None) -> bool:
        """Try the entity's parked messages that come `before`, in their order; whether none of them is left."""
        try:
            while found := self._parking.first(self._queue, key, self._settings.at_once):
                some = [each for each in found if before is None or each.place < before.place]
                if not all(self._tried_each(turn, self._parking, some)):
                    return False
                if len(some) < len(found):
                    return True
        except LeaseholdError as error:
            turn.report(turn.start, None, self._work.away(error))
            return False
        return True

    def _tried_each(self, turn: _Turn, parking: ParkedMessages, messages: Sequence[ParkedMessage]) -> Iterator[bool]:
        """Try parked messages one after the other; of each, whether the next one may follow."""
        for parked in messages:
            if turn.stopping() or parked.next_at > self._clock.wall():
                yield False
                return
            result = self._tried_parked(parking, parked, turn.lease)
            turn.report(turn.start, None, result)
            yield result.goes_on

    def _tried_parked(self, parking: ParkedMessages, parked: ParkedMessage, lease: EntityHold) -> TryResult:
        """One try at a parked message; what has become of it is in the sink then."""
        message = message_of(parked)
        content = self._reader.read(message)
        if isinstance(content, Unfit):
            return self._set_aside(parking, parked, f"{content.reason}: {content.description}")
        if content.key != parked.key:
            return self._set_aside(parking, parked, f"it was parked for {parked.key}, and is of {content.key} now")
        delivery = parked.deliveries + 1
        result = self._work.tried_message(message, content, delivery, lease)
        if result.ending is Ending.REPEATED:
            parking.remove(parked)
        elif result.ending is Ending.REJECTED:
            return self._set_aside(parking, parked, f"{result.reason}: {result.description}")
        elif result.ending is Ending.FAILED:
            if delivery >= self._settings.max_deliveries:
                return self._set_aside(parking, parked, f"{FAILED_REASON}: {result.description}")
            return self._put_after(parking, replace(parked, deliveries=delivery), result)
        return TryResult(Ending.BUSY) if result.ending is Ending.BEHIND else result

    def _set_aside(self, parking: ParkedMessages, parked: ParkedMessage, reason: str) -> TryResult:
        name = parked.name
        if not parking.set_aside(parked, reason):
            return TryResult(Ending.REPEATED)
        logger.warning("message %d of %r is a rejected row: %s", name.sequence_number, parked.key, reason)
        return TryResult(Ending.SET_ASIDE, description=reason)
