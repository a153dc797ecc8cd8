"""What becomes of events whose handler raises: which wait, until when, and when most fail, that nothing is parked.

Owns these rules. Pure: no database, no clock, and randomness comes in as a number.

1. With the policy `park` an event whose handler raised waits in the sink (`sinks.beside.parking`), and later events of
   its entity wait behind it, uncalled. Other entities go on.
2. The first event of an entity is tried again after a pause that doubles with each try, between `first` and `longest`
   seconds, of which chance takes up to half away, so that what failed together is not tried together. `Retry(after)`
   says it to the second. Events behind it are tried as soon as they are first.
3. An event that was tried `deliveries` times is set aside with its exception and traceback, and its entity goes on as
   if it had never been. With the policy `discard` that is after its first try.
4. When more than half of the entities that a partition's handler was called for fail with the same exception, and at
   least `ALIKE` of them, it is an outage: of what the handler calls, or of the handler. Nothing is parked, set aside
   or counted then. That is judged by the batch at hand, and by the last `REMEMBERED` entities, each by its calls in its
   last batch: if any of them succeeded it is not among those that fail.
5. Parked events are those that fail: that most of them fail alike again says nothing of the others. They are in an
   outage only if nothing has succeeded since they were tried last, neither of them nor of what came. So none waits for
   ever because it is one of many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from leasehold.backoff import Backoff
from leasehold.config import check_number, check_seconds, default_where_none
from leasehold.errors import ConfigError
from leasehold.handlers.calling.raised import RaisedElsewhere, described
from leasehold.handlers.contract import Held, Key, Retry
from leasehold.printable import span
from leasehold.sinks.rules.parking import ParkedEvent

ALIKE = 10
REMEMBERED = 100
POLICIES = ("park", "discard", "wait")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often an event is tried whose handler raises, and when. Pauses in seconds.

    deliveries   tries, before it is set aside
    first        the pause after the first try; it doubles with each
    longest      the longest pause
    """

    deliveries: int = 10
    first: float = 1.0
    longest: float = 300.0

    def __post_init__(self) -> None:
        default_where_none(self)
        check_number("deliveries", self.deliveries, least=1, remedy="10 is the default")
        for name in ("first", "longest"):
            check_seconds(name, getattr(self, name))
        if self.longest < self.first:
            raise ConfigError(
                "longest", self.longest, f"no shorter than first ({span(self.first)})", "300 s by default"
            )

    def pause(self, tries: int, draw: float) -> float:
        """Seconds until the next try after this many, at least 1; `draw` is between 0 and 1: rule 2."""
        return Backoff(self.first, self.longest).pause(tries, draw)


def check_policy(policy: str) -> None:
    """Refuse what is not a policy. Raises `ConfigError`."""
    if policy not in POLICIES:
        raise ConfigError("on_failure", policy, f"one of {', '.join(POLICIES)}", "park is the default")


def parked(
    held: Collection[Held], tried: Iterable[int], retries: Retries, now: float, draw: Callable[[], float]
) -> tuple[list[ParkedEvent], list[int]]:
    """What is to be kept of events that wait, and which of those that were parked and `tried` wait no more: rules 1, 2.

    Of the latter, those that were not called for stay as they are. `now` in seconds since 1970.
    """
    before, left = {*tried}, {one.event.sequence_number for one in held}
    kept = []
    for one in held:
        event = one.event
        if one.error is None and event.sequence_number in before:
            continue
        place = (one.key, event.body, event.sequence_number, event.enqueued_time)
        if one.error is None:
            kept.append(ParkedEvent(*place))
            continue
        stated = one.error.after if isinstance(one.error, Retry | RaisedElsewhere) else None
        pause = retries.pause(event.delivery, draw()) if stated is None else stated
        kept.append(ParkedEvent(*place, event.delivery, now + pause, described(one.error)))
    return kept, sorted(before - left)


class Outcomes:
    """How the calls of one partition's handler have ended, in the last batch of each entity: rules 4 and 5."""

    def __init__(self) -> None:
        self._last: dict[Key, str | None] = {}
        self._works = False  # for an event that came since parked ones were tried

    def outage(self, calls: Mapping[Key, str | None]) -> str | None:
        """Note how calls have ended: with an exception of this name, or None. The name that most failed with, if that
        is an outage, and some of these calls are of it."""
        self._works = self._works or None in calls.values()
        for key, failure in calls.items():
            self._last.pop(key, None)
            self._last[key] = failure
        for key in [*self._last][: max(0, len(self._last) - REMEMBERED)]:
            del self._last[key]
        for known in (calls, self._last):
            name = _most_fail(known)
            if name is not None and name in calls.values():
                return name
        return None

    def outage_of_parked(self, calls: Mapping[Key, str | None], *, worked: bool) -> bool:
        """Note how calls for parked events have ended, of which some `worked`, if any event was applied or rejected.
        Whether they have met an outage."""
        works, self._works = self._works or worked, worked
        self._last |= {key: None for key, failure in calls.items() if failure is None and key in self._last}
        return not works and _most_fail({**self._last, **calls}) is not None


def _most_fail(calls: Mapping[Key, str | None]) -> str | None:
    failures = Counter(failure for failure in calls.values() if failure is not None)
    for name, count in failures.most_common(1):
        if count >= ALIKE and 2 * count > len(calls):
            return name
    return None
