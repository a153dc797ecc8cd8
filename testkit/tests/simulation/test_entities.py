"""Entities while partitions move: no rule is violated, and each guard that is taken away is missed by some seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from click.testing import CliRunner
from tests.campaigns import first

from leasehold.cli.app import app
from leasehold.handlers.contract import compute as compute_events
from leasehold.handlers.exclusive import ExclusiveEntities
from leasehold.handlers.known_partition import KnownPartition
from leasehold.handlers.parking import policy as parking
from leasehold.handlers.parking import trying
from leasehold.handlers.spread import SpreadEntities
from leasehold.handlers.table import HandledTable
from leasehold.sinks.rules import fence
from leasehold.sinks.sqlite.transaction import SqliteTransaction
from leasehold_testkit.simulation.handlers import EntityRule, run_entities, story_of

EACH, SEEDS = 10, 300
Patch = pytest.MonkeyPatch


@pytest.mark.more
@pytest.mark.parametrize("begin", first(3, range(0, SEEDS, EACH)))
def test_no_rule_is_violated(begin: int) -> None:
    for seed in range(begin, begin + EACH):
        report = run_entities(story_of(seed))
        assert report.violation is None, f"{report.violation}\n{report.describe()}"


def test_the_command_replays_a_seed() -> None:
    result = CliRunner().invoke(app, ["simulate", "--seed", "5", "--entities"])
    assert result.exit_code == 0
    assert "seed 5: no violation with " in result.stdout
    refused = CliRunner().invoke(app, ["simulate", "--entities", "--scenario", "join"])
    assert refused.exit_code == 2
    assert "--entities replays the story of a --seed" in refused.stderr


@pytest.mark.soak
@pytest.mark.timeout(4 * 3_600)
def test_soak() -> None:
    for seed in range(SEEDS, 20 * SEEDS):
        report = run_entities(story_of(seed))
        assert report.violation is None, f"{report.violation}\n{report.describe()}"


def test_a_run_is_a_function_of_its_seed() -> None:
    for seed in range(3):
        one, other = (run_entities(story_of(seed)) for _ in range(2))
        assert (one.trace, one.seconds) == (other.trace, other.seconds)


# The guards


def levels_are_not_raised(patch: Patch) -> None:
    """An owner reads states before former ones can commit no more, and does not look whether they have.

    The second guard alone is enough for effects; the first one keeps a former owner from computing in vain.
    """
    outdated_batches_are_taken(patch)

    def is_owner(self: Any, batch: Any) -> bool:
        self._known.setdefault((batch.hub, batch.partition), KnownPartition(batch.owner_level))
        return True

    patch.setattr(HandledTable, "_is_owner", is_owner)


def levels_are_not_compared(patch: Patch) -> None:
    """The commit of a former owner is taken."""
    original = fence.plan

    def plan(stored: Any, ranges: Any, lost: Any) -> Any:
        lower = {lane: replace(mark, owner_level=0) for lane, mark in stored.items()}
        return original(lower, ranges, lost)

    patch.setattr(fence, "plan", plan)


def outdated_batches_are_taken(patch: Patch) -> None:
    """Neither place nor count of changes is compared.

    That parked events which are tried have to be there is a second guard.
    """
    tried_events_may_be_gone(patch)
    patch.setattr(fence, "outdated", lambda stored, read_under: False)


def changes_are_not_counted(patch: Patch) -> None:
    """The place is compared, and the count of changes is not, nor is what is parked."""
    tried_events_may_be_gone(patch)
    original = fence.outdated

    def outdated(stored: Any, read_under: Any) -> bool:
        same = {lane: replace(mark, changes=0) for lane, mark in stored.items()}
        return original(same, {lane: replace(mark, changes=0) for lane, mark in read_under.items()})

    patch.setattr(fence, "outdated", outdated)


def tried_events_may_be_gone(patch: Patch) -> None:
    """Parked events take effect though somebody else has applied or dropped them meanwhile."""
    patch.setattr(SqliteTransaction, "are_parked", lambda self, hub, partition, numbers: True)


def later_events_are_not_parked_behind(patch: Patch) -> None:
    original = compute_events

    def compute(*arguments: Any, **more: Any) -> Any:
        return original(*arguments, **{**more, "waiting": ()})

    patch.setattr("leasehold.handlers.table.compute", compute)


def the_watermark_is_passed_over(patch: Patch) -> None:
    """Events that are applied already are computed again."""
    original = HandledTable._compute

    def compute(self: Any, batch: Any, mark: Any, again: int) -> Any:
        return original(self, batch, replace(mark, sequence_number=-1), again)

    patch.setattr(HandledTable, "_compute", compute)


def what_was_applied_stays_parked(patch: Patch) -> None:
    original = parking.parked

    def parked(*arguments: Any) -> Any:
        return original(*arguments)[0], []

    patch.setattr("leasehold.handlers.table.parked", parked)


def new_owners_do_not_look_for_parked_events(patch: Patch) -> None:
    original = KnownPartition.entities_waiting

    def waiting(self: Any, *arguments: Any) -> Any:
        if self.waiting is None and self.context is None:
            self.waiting, self.changes = {}, arguments[3].changes
            return self.waiting
        return original(self, *arguments)

    patch.setattr(KnownPartition, "entities_waiting", waiting)


def parked_events_are_tried_by_anybody(patch: Patch) -> None:
    """A former owner's tries are committed under whatever watermark is there."""
    original = trying.TriesParked._watermark

    def mark(self: Any, batch: Any) -> Any:
        return replace(original(self, batch), owner_level=batch.owner_level)

    levels_are_not_compared(patch)
    outdated_batches_are_taken(patch)
    patch.setattr(trying.TriesParked, "_watermark", mark)


def parked_events_are_never_due(patch: Patch) -> None:
    patch.setattr(KnownPartition, "entities_waiting", lambda self, *arguments: {("e0",): math.inf})


def versions_are_not_compared(patch: Patch) -> None:
    """What another partition's commit has changed meanwhile is overwritten."""
    original = SpreadEntities.versioned

    def versioned(self: Any, *arguments: Any, **more: Any) -> Any:
        return replace(original(self, *arguments, **more), again=None)

    patch.setattr(SpreadEntities, "versioned", versioned)


def other_partitions_parked_events_are_not_waited_for(patch: Patch) -> None:
    original = SpreadEntities._compute

    def compute(self: Any, given: Any, values: Any, known: Any, call: Any) -> Any:
        return original(self, given, values, {key: replace(one, waits=False) for key, one in known.items()}, call)

    patch.setattr(SpreadEntities, "_compute", compute)


def leases_are_not_looked_at(patch: Patch) -> None:
    """Who has lost an entity's lease goes on."""
    original = ExclusiveEntities.within

    class Kept:
        def __init__(self, lease: Any) -> None:
            self.fence, self.lost = lease.fence, self

        def is_set(self) -> bool:
            return False

    class Held(dict[Any, Any]):
        def __init__(self, held: Any) -> None:
            self._held = held

        def get(self, key: Any, default: Any = None) -> Any:
            lease = self._held.get(key)
            return None if lease is None else Kept(lease)

    patch.setattr(ExclusiveEntities, "within", lambda self, handler, held: original(self, handler, Held(held)))


@dataclass(frozen=True, slots=True)
class Guard:
    """How it is taken away, which rules are violated then, and a seed that shows it."""

    take_away: Callable[[Patch], None]
    rules: frozenset[EntityRule]
    seed: int


def guard(take_away: Callable[[Patch], None], seed: int, *rules: EntityRule) -> tuple[str, Guard]:
    return take_away.__name__, Guard(take_away, frozenset(rules), seed)


R = EntityRule
GUARDS = dict(
    (
        guard(levels_are_not_raised, 82, R.UNDONE, R.TWICE, R.ORDER),
        guard(levels_are_not_compared, 1, R.UNDONE, R.TWICE, R.ORDER),
        guard(tried_events_may_be_gone, 248, R.TWICE, R.BROKEN),
        guard(outdated_batches_are_taken, 2, R.UNDONE, R.TWICE, R.ORDER, R.DROPPED_APPLIED),
        guard(changes_are_not_counted, 34, R.UNDONE, R.TWICE, R.ORDER, R.DROPPED_APPLIED),
        guard(later_events_are_not_parked_behind, 3, R.ORDER),
        guard(the_watermark_is_passed_over, 0, R.TWICE, R.ORDER),
        guard(what_was_applied_stays_parked, 0, R.TWICE),
        guard(new_owners_do_not_look_for_parked_events, 2, R.PARKED_FOR_EVER, R.ORDER),
        guard(parked_events_are_tried_by_anybody, 1, R.UNDONE, R.TWICE, R.ORDER),
        guard(parked_events_are_never_due, 0, R.PARKED_FOR_EVER),
        guard(versions_are_not_compared, 1, R.UNDONE),
        guard(other_partitions_parked_events_are_not_waited_for, 4, R.ORDER, R.UNDONE),
        guard(leases_are_not_looked_at, 2, R.NO_LEASE),
    )
)


@pytest.mark.more
@pytest.mark.parametrize("name", GUARDS)
def test_a_missing_guard_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    its = GUARDS[name]
    its.take_away(monkeypatch)
    for seed in (its.seed, *range(SEEDS)):
        violation = run_entities(story_of(seed)).violation
        if violation is not None and violation.rule in its.rules:
            if seed != its.seed:
                print(f"{name!r} is caught by seed {seed}")
            return
    pytest.fail(f"not caught without: {name}")
