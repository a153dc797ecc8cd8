"""The rules for entities, and who looks whether they hold.

A state is the list of the events that it was made of, so the table itself says what has taken effect, in which order:

1. What has taken effect is never undone: each commit only adds to an entity's list. So no call builds on a state that
   another one has changed meanwhile: never two at once in effect.
2. No event is in a list twice, those of one partition are in order, and none is added that an operator has dropped.
3. With leases, whoever calls the handler holds the entity's lease at that moment, under the fence that it is given.
4. When all is calm, nothing stays parked, and each event has taken effect but dead letters and those that an operator
   has dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from leasehold_testkit.simulation.handlers.story import FOR_EVER, EntityStory

Seen = Mapping[str, tuple[tuple[int, int], ...]]
"""For each entity the partition and number of each event that has taken effect."""


class EntityRule(StrEnum):
    """What was violated."""

    UNDONE = "what had taken effect was undone"
    TWICE = "an effect twice"
    DROPPED_APPLIED = "an event took effect that an operator had dropped"
    ORDER = "out of order"
    NO_LEASE = "called without its lease"
    PARKED_FOR_EVER = "parked for ever"
    MISSING = "an event without effect"
    DEAD_APPLIED = "an event took effect whose handler never answers"
    BROKEN = "an error that nobody expects"


class EntityViolation(AssertionError):
    """A rule does not hold."""

    def __init__(self, rule: EntityRule, text: str) -> None:
        self.rule = rule
        super().__init__(f"{rule.value}: {text}")


class EntityJudge:
    """Looks at the table after each commit."""

    def __init__(self, story: EntityStory) -> None:
        self._story = story
        self._before: Seen = {}
        self.dropped: set[tuple[int, int]] = set()

    def committed(self, seen: Seen) -> None:
        """Rules 1 and 2."""
        for entity, before in self._before.items():
            if seen.get(entity, ())[: len(before)] != before:
                raise EntityViolation(EntityRule.UNDONE, f"{entity}: {before}, then {seen.get(entity, ())}")
        for entity, events in seen.items():
            if len(set(events)) < len(events):
                raise EntityViolation(EntityRule.TWICE, f"{entity}: {events}")
            for partition in {partition for partition, _ in events}:
                numbers = [number for place, number in events if place == partition]
                if numbers != sorted(numbers):
                    raise EntityViolation(EntityRule.ORDER, f"{entity}, partition {partition}: {numbers}")
        new = {place for entity, events in seen.items() for place in events[len(self._before.get(entity, ())) :]}
        if wrong := new & self.dropped:
            raise EntityViolation(EntityRule.DROPPED_APPLIED, f"{sorted(wrong)}")
        self._before = seen

    def calls(self, entity: str, fence: int, held: Iterable[int]) -> None:
        """Rule 3; `held` are the fences under which the lease is held at this moment."""
        if fence not in held:
            raise EntityViolation(EntityRule.NO_LEASE, f"{entity} under fence {fence}, held under {[*held]}")

    def ended(self, parked: int) -> None:
        """Rule 4."""
        if parked:
            raise EntityViolation(EntityRule.PARKED_FOR_EVER, f"{parked} events")
        for partition, events in enumerate(self._story.events):
            for number, told in enumerate(events):
                place = partition, number
                there = place in self._before.get(told.entity, ())
                if there and told.fails == FOR_EVER:
                    raise EntityViolation(EntityRule.DEAD_APPLIED, f"{told.entity}, {place}")
                if not there and told.fails != FOR_EVER and place not in self.dropped:
                    raise EntityViolation(EntityRule.MISSING, f"{told.entity}, {place}")
