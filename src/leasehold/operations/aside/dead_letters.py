"""A queue's dead letters, for an operator: looked at, sent again, removed.

Owns how chosen dead letters are taken: a queue gives out its messages only in its own order, so that all are locked in
turn until the chosen ones have come, and the others are given back. Nothing else may be lost: a copy is sent before its
dead letter is completed, under a name that no queue takes for a duplicate of its first (`Queue.resubmit`). A process
that ends between the two leaves the dead letter beside the copy, and whoever sends it again sends a second copy: a
queue with duplicate detection drops it within its window, any other queue has both. A mended body is the copy's; the
dead letter that is removed had the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from leasehold.errors import ConfigError, QueueError
from leasehold.operations.aside.contract import Aside, Done, Entry, EntryFilter, Left
from leasehold.operations.aside.exported import ExportedFile, body_as_json
from leasehold.printable import utc
from leasehold.queues import Queue, QueueMessage

_AT_ONCE = 100
_WAIT = 2.0
"""Seconds for which nothing comes before a queue counts as looked through."""
NO_BYTES = "its body is no bytes: it can only be dropped"
LOCK_LOST = "its lock was lost before it could be removed"


class DeadLettersAside(Aside):
    """The dead letters of a queue, or of a subscription, which this closes."""

    kind, noun = "dead-letters", "dead letter"
    names = ("sequenceNumber", "enqueuedTime")

    def __init__(self, queue: Queue) -> None:
        self._queue, self._dead = queue, queue.dead_letters()
        self.where = self._dead.url

    def close(self) -> None:
        """Disconnect."""
        self._dead.close()
        self._queue.close()

    def _entries(self, choice: EntryFilter) -> Iterator[Entry]:
        """In the order of their numbers. Locks nothing."""
        if choice.hub or choice.partition:
            rule = "dead letters of a queue have neither a hub nor a partition"
            raise ConfigError("--hub or --partition", choice.hub or choice.partition, rule, "Choose by another option")
        start = 0
        while page := self._dead.peek(start, _AT_ONCE):
            yield from map(_entry, page)
            start = max(message.sequence_number for message in page) + 1

    def _about(self, key: Sequence[str]) -> Callable[[Entry], bool]:
        return lambda entry: entry.kept.session_id in key or entry.kept.partition_key in key

    def refusal(self, entry: Entry, body: bytes | None) -> str | None:
        """Only bytes can be sent in place of bytes."""
        return NO_BYTES if body is None or entry.body is None else None

    def retry(self, choice: EntryFilter, file: ExportedFile | None, say: Callable[[int], object]) -> Done:
        """Send copies of dead letters into the queue where they died, without the marks of it, and remove them."""

        def again(entry: Entry) -> str:
            message: QueueMessage = entry.kept
            try:
                self._dead.resubmit([message if entry.mended is None else replace(message, body=entry.mended)])
            except QueueError as error:
                return str(error)
            return ""

        left: list[Left] = []
        if file is not None:
            taken = {entry.kept.identity: entry for entry in self.taken(choice, file, left)}
            choice = EntryFilter(events=frozenset((None, entry.number) for entry in taken.values()))
            return self._treated(choice, lambda entry: taken.get(entry.kept.identity), again, "resubmitted", left)
        return self._treated(choice, self._chooser(choice), again, "resubmitted", left)

    def drop(self, choice: EntryFilter, because: str) -> Done:
        """Remove dead letters for good."""
        return self._treated(choice, self._chooser(choice), lambda entry: "", "dropped", [])

    def _chooser(self, choice: EntryFilter) -> Callable[[Entry], Entry | None]:
        about = self._about(choice.key) if choice.key else None
        return lambda entry: entry if choice.has(entry) and (about is None or about(entry)) else None

    def _treated(
        self,
        choice: EntryFilter,
        chooser: Callable[[Entry], Entry | None],
        first: Callable[[Entry], str],
        outcome: str,
        untouched: list[Left],
    ) -> Done:
        """Complete each dead letter that is meant, once `first` has done its part; it says why not, or nothing."""
        dead, gone, seen, others = self._dead, 0, set[str](), list[QueueMessage]()
        wanted = None if choice.events is None else {number for _, number in choice.events}
        try:
            while wanted is None or wanted:
                page = dead.receive(_AT_ONCE, _WAIT)
                new = [message for message in page if message.identity not in seen]
                others += [message for message in page if message.identity in seen]
                if not new:
                    break  # all have been looked at; what comes again is what was not meant
                for message in new:
                    seen.add(message.identity)
                    if wanted is not None:
                        wanted.discard(message.sequence_number)
                    if (entry := chooser(_entry(message))) is None:
                        others.append(message)
                    elif why := first(replace(entry, kept=message)):
                        others.append(message)
                        untouched.append(entry.left(why))
                    elif dead.complete([message]):
                        untouched.append(entry.left(LOCK_LOST))
                    else:
                        gone += 1
        finally:
            dead.abandon(others)
        return Done({outcome: gone}, untouched)


def _entry(message: QueueMessage) -> Entry:
    reason, description = message.dead_letter_reason, message.dead_letter_description
    said = ": ".join(text for text in (reason, description) if text)
    record = {
        **{"sequenceNumber": message.sequence_number, "enqueuedTime": utc(message.enqueued_time)},
        **{"messageId": message.message_id, "sessionId": message.session_id, "reason": reason},
        **{"description": description, **body_as_json(message.body), "properties": dict(message.properties)},
    }
    return Entry(message.sequence_number, said, message.enqueued_time, message.body, record, message)
