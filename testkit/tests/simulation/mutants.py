"""The protocol without one of its guards: which rules that must violate, and where.

Every mutant has a story that catches it: some seeds of the campaign, or a story written for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leasehold.ownership import parts
from leasehold_testkit.simulation import Fault, FaultKind, Part, Rule, Story
from testkit.tests.simulation.missing_guards import (
    AgesByTheWallClock,
    Apply,
    ClaimsWithoutEtags,
    LetsGoUndrained,
    LetsGoUnrecorded,
    LowersLevels,
    NoFence,
    NoWatermark,
    RelinquishesWithoutEtags,
    RenewsWithoutEtags,
    SilentSink,
    TakesAnyCheckpoint,
    ages_from_the_first_listing,
    announces_blindly,
    asks_at_any_level,
    asks_of_anybody,
    claims_trusted_from_the_reply,
    counts_owners_only,
    extends_what_has_lapsed,
    forgets_attempts,
    hands_to_nobody,
    keeps_what_was_taken,
    level_of,
    never_steals,
    no_attention,
    no_doubt,
    no_grace,
    no_reservation,
    no_settling,
    no_stall,
    no_successors,
    patched,
    recognises_by_name,
    recognises_from_now,
    settles_nothing,
    sinks,
    steals_at_once,
    stores,
    trust_from_the_reply,
    trusts_for_ever,
    unannounced,
    works,
)

# Stories that are made for a mutant


def _parts(names: str, **fields: Any) -> tuple[Part, ...]:
    return tuple(Part(name=name, **fields) for name in names)


TWO = (*_parts("a"), Part(name="b", starts_at=None))

OUTAGE_AND_NEWCOMER = Story(
    seed=3,
    partitions=2,
    parts=(*_parts("ab"), Part(name="c", starts_at=100.2)),
    faults=(Fault(at=40.0, kind=FaultKind.OUTAGE, what="ownership", seconds=60.0),),
    ends_at=102.0,
    calm=True,
)
GHOST_OF_A_CLAIM = Story(
    seed=1,
    partitions=1,
    parts=_parts("a", rate=0.81),
    faults=(
        Fault(at=0.0, kind=FaultKind.DELAY, who="a", what="claim_ownership", seconds=1.0),
        Fault(at=3.0, kind=FaultKind.SLOW, who="a", what="list_checkpoints", seconds=3.0),
        Fault(at=3.0, kind=FaultKind.LOSE_REPLY, who="a", what="claim_ownership"),
    ),
)
ASKER_LEAVES = Story(
    seed=2,
    partitions=2,
    parts=TWO,
    faults=(
        Fault(at=15.0, kind=FaultKind.HANG, who="a", seconds=40.0),
        Fault(at=18.0, kind=FaultKind.JOIN, who="b"),
        Fault(at=23.0, kind=FaultKind.LEAVE, who="b"),
    ),
)
DEAF_OWNER = Story(
    seed=1,
    partitions=2,
    parts=TWO,
    faults=(
        Fault(at=15.0, kind=FaultKind.JOIN, who="b"),
        *(Fault(at=15.0, kind=FaultKind.FAIL, who="a", what="list_ownership") for _ in range(40)),
    ),
    ends_at=70.0,
    calm=True,
    calm_from=58.0,
)
QUICK_RESTART = Story(
    seed=1,
    partitions=4,
    parts=_parts("ab"),
    faults=(Fault(at=40.0, kind=FaultKind.CRASH, who="a", seconds=1.0),),
    calm=True,
    calm_from=47.0,
)
COLD = tuple(Part(name=name, starts_at=0.2 * number) for number, name in enumerate("abcd"))
COLD_START = Story(seed=1, partitions=16, parts=COLD, ends_at=20.0, moves=0)
RENEWAL_WITHOUT_REPLY = Story(
    seed=1,
    partitions=2,
    parts=_parts("ab"),
    faults=(Fault(at=45.0, kind=FaultKind.LOSE_REPLY, who="a", what="renew_ownership"),),
    calm=True,
)
USURPED_IN_A_CLAIM = Story(
    seed=4,
    partitions=2,
    parts=_parts("a"),
    faults=(
        Fault(at=0.0, kind=FaultKind.SLOW, who="a", what="claim_ownership", seconds=2.9),
        Fault(at=2.2, kind=FaultKind.USURP, who="a", seconds=8.0),
    ),
)
# Instances that run remember the levels that they have seen.
WIPED_WHILE_NOBODY_RAN = Story(
    seed=1,
    partitions=2,
    parts=_parts("a"),
    faults=(
        Fault(at=10.0, kind=FaultKind.CRASH, who="a", seconds=1.0),
        Fault(at=25.0, kind=FaultKind.CRASH, who="a", seconds=1.0),
        Fault(at=40.0, kind=FaultKind.CRASH, who="a", seconds=10.0),
        Fault(at=45.0, kind=FaultKind.WIPE, what="both"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A guard taken away. It is caught in one of `seeds` or in `story`, by one of `rules`."""

    apply: Apply
    rules: tuple[Rule, ...]
    seeds: tuple[int, ...] = ()
    story: Story | None = None


MUTANTS: dict[str, Mutant] = {
    "a claim compares ETags": Mutant(
        apply=stores(ClaimsWithoutEtags),
        rules=(Rule.LEVEL_FELL,),
        seeds=(7, 10, 11),
    ),
    "a renewal compares ETags": Mutant(
        apply=stores(RenewsWithoutEtags),
        rules=(Rule.NOT_ITS_OWN,),
        seeds=(1, 22, 24),
    ),
    "giving up compares ETags": Mutant(
        apply=stores(RelinquishesWithoutEtags),
        rules=(Rule.NOT_ITS_OWN,),
        seeds=(101, 194, 195),
    ),
    "a checkpoint of a lower level is refused": Mutant(
        apply=stores(TakesAnyCheckpoint),
        rules=(Rule.CHECKPOINT_BACK,),
        seeds=(13, 22, 24),
    ),
    "a raised level never falls": Mutant(
        apply=stores(LowersLevels),
        rules=(Rule.CHECKPOINT_BACK,),
        seeds=(34, 48, 55),
    ),
    "ages come from one clock": Mutant(
        apply=stores(AgesByTheWallClock),
        rules=(
            Rule.STOLEN_UNASKED,
            Rule.MOVED,
        ),
        seeds=(42, 50, 214),
    ),
    "the sink's fence": Mutant(
        apply=sinks(NoFence),
        rules=(Rule.EFFECT_TWICE,),
        seeds=(0, 1, 5),
    ),
    "the sink's watermark": Mutant(
        apply=sinks(NoWatermark),
        rules=(Rule.EFFECT_TWICE,),
        seeds=(0, 1, 5),
    ),
    "levels that went back are said aloud": Mutant(
        apply=sinks(SilentSink),
        rules=(Rule.NOT_CONSUMED,),
        story=WIPED_WHILE_NOBODY_RAN,
    ),
    "drain before hand-over": Mutant(
        apply=works(LetsGoUndrained),
        rules=(Rule.NOT_DRAINED,),
        seeds=(9, 58, 116),
    ),
    "the checkpoint before hand-over": Mutant(
        apply=works(LetsGoUnrecorded),
        rules=(Rule.NOT_DRAINED,),
        seeds=(3, 4, 5),
    ),
    "trust ends before expiry": Mutant(
        apply=patched(parts, "trust_duration", lambda expiration, ratio, margin: 2 * expiration),
        rules=(Rule.TRUST_TOO_LONG,),
        seeds=(0, 1, 2),
    ),
    "trust allows for slow clocks": Mutant(
        apply=patched(parts, "trust_duration", lambda expiration, ratio, margin: expiration - margin),
        rules=(Rule.TRUST_TOO_LONG,),
        seeds=(0, 1, 2),
    ),
    "a renewal is trusted from its request": Mutant(
        apply=trust_from_the_reply,
        rules=(Rule.TRUST_TOO_LONG,),
        seeds=(0, 1, 2),
    ),
    "a claim is trusted from its request": Mutant(
        apply=claims_trusted_from_the_reply,
        rules=(Rule.TRUST_TOO_LONG,),
        seeds=(0, 1, 2),
    ),
    "a late find is trusted from its request": Mutant(
        apply=recognises_from_now,
        rules=(Rule.TRUST_TOO_LONG,),
        seeds=(6, 12, 105),
    ),
    "a lapse ends a level": Mutant(
        apply=extends_what_has_lapsed,
        rules=(Rule.HELD_WITH_A_GAP,),
        seeds=(0, 5, 32),
    ),
    "only what is trusted is held": Mutant(
        apply=trusts_for_ever,
        rules=(Rule.TWO_OWNERS,),
        seeds=(50, 141, 197),
    ),
    "the level rises": Mutant(
        apply=level_of(lambda record, checkpoint: record.owner_level or 1),
        rules=(Rule.LEVEL_FELL,),
        seeds=(0, 1, 3),
    ),
    "the level rises above the checkpoint's": Mutant(
        apply=level_of(lambda record, checkpoint: 1 + record.owner_level),
        rules=(
            Rule.ACQUIRED_TWICE,
            Rule.NOT_BALANCED,
            Rule.MOVED,
            Rule.NOT_CONSUMED,
            Rule.LEVEL_FELL,
        ),
        seeds=(29, 87, 156),
    ),
    "the level rises above the record's": Mutant(
        apply=level_of(lambda record, checkpoint: 1 + checkpoint.owner_level),
        rules=(Rule.LEVEL_FELL,),
        seeds=(96, 193, 143),
    ),
    "the level is announced before it is held": Mutant(
        apply=unannounced,
        rules=(Rule.UNANNOUNCED,),
        seeds=(0, 2, 3),
    ),
    "a higher level in the answer is heeded": Mutant(
        apply=announces_blindly,
        rules=(Rule.SUPERSEDED,),
        story=USURPED_IN_A_CLAIM,
    ),
    "the nonce is compared": Mutant(
        apply=recognises_by_name,
        rules=(Rule.TRUST_TOO_LONG,),
        story=GHOST_OF_A_CLAIM,
    ),
    "a claim whose reply was lost is known again": Mutant(
        apply=forgets_attempts,
        rules=(Rule.ACQUIRED_TWICE,),
        seeds=(6, 12, 105),
    ),
    "a renewal whose reply was lost is known again": Mutant(
        apply=settles_nothing,
        rules=(Rule.ACQUIRED_TWICE,),
        story=RENEWAL_WITHOUT_REPLY,
    ),
    "what was taken is dropped": Mutant(
        apply=keeps_what_was_taken,
        rules=(Rule.TWO_OWNERS,),
        seeds=(1, 22, 24),
    ),
    "an ask is void at another level": Mutant(
        apply=asks_at_any_level,
        rules=(Rule.HANDED_UNASKED,),
        seeds=(30, 50, 186),
    ),
    "an ask of one that has left is void": Mutant(
        apply=asks_of_anybody,
        rules=(Rule.HANDED_UNASKED,),
        story=ASKER_LEAVES,
    ),
    "a second look when all seem expired": Mutant(
        apply=no_doubt,
        rules=(Rule.MOVED,),
        story=OUTAGE_AND_NEWCOMER,
    ),
    "time to come back after an outage": Mutant(
        apply=no_grace,
        rules=(Rule.MOVED,),
        seeds=(124, 260),
    ),
    "attention": Mutant(
        apply=no_attention,
        rules=(Rule.SLOW_HAND_OVER,),
        seeds=(4, 7, 10),
    ),
    "settling at the start": Mutant(
        apply=no_settling,
        rules=(Rule.MOVED,),
        story=COLD_START,
    ),
    "the stall timeout": Mutant(
        apply=no_stall,
        rules=(Rule.NOT_BALANCED,),
        seeds=(118, 150, 172),
    ),
    "the reservation": Mutant(
        apply=no_reservation,
        rules=(Rule.RESERVED,),
        seeds=(136, 143, 145),
    ),
    "asking before a steal": Mutant(
        apply=steals_at_once,
        rules=(Rule.STOLEN_UNASKED,),
        seeds=(1, 3, 5),
    ),
    "the deadline of an ask": Mutant(
        apply=never_steals,
        rules=(Rule.NOT_BALANCED,),
        story=DEAF_OWNER,
    ),
    "handing over to who asked": Mutant(
        apply=hands_to_nobody,
        rules=(Rule.NOT_HANDED,),
        seeds=(43, 116, 171),
    ),
    "a predecessor's partitions at once": Mutant(
        apply=no_successors,
        rules=(Rule.NOT_BALANCED,),
        story=QUICK_RESTART,
    ),
    "presence": Mutant(
        apply=counts_owners_only,
        rules=(Rule.STOLEN_UNASKED,),
        seeds=(1, 3, 5),
    ),
    "an age starts anew with each ETag": Mutant(
        apply=ages_from_the_first_listing,
        rules=(
            Rule.MOVED,
            Rule.NOT_BALANCED,
            Rule.STOLEN_UNASKED,
            Rule.TWO_OWNERS,
        ),
        seeds=(2, 14, 15),
    ),
}
"""By the guard that is missing."""
