"""What a simulation is about, as values: who takes part, what goes wrong, and when.

A story is all that a run depends on: the same story gives the same run, step by step. Its faults are a list, so that
a story which fails can be made shorter by leaving some of them out. Times are virtual seconds from the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class FaultKind(StrEnum):
    """What goes wrong, or only differently: what `Fault.who`, `what`, `seconds` and `number` mean for it."""

    CRASH = "crashes"  # who; restarts after `seconds` unless these are negative
    PAUSE = "is paused"  # who, for `seconds`
    USURP = "is paused, and another incarnation of it started"  # who, for `seconds`
    HANG = "works no more"  # who: its work hangs for `seconds`, for ever if these are negative; its cycles go on
    LEAVE = "leaves"  # who, after it has finished what it does
    JOIN = "starts"  # who, as in `Story.instances`
    CAPACITY = "starts again with another capacity"  # who, with `number`
    PARTITIONS = "more partitions"  # `number` of them
    OUTAGE = "is away"  # what (see below), for `seconds`; for `who` alone if it is given
    WIPE = "is wiped"  # what: a store, or `both`
    RESTORE = "is restored from a backup"  # what: a store or `both`, as it was `seconds` earlier
    # The next request of `who` to `what`:
    FAIL = "fails at once"
    SLOW = "is slow"  # takes `seconds`, at most the request time-out
    LOSE = "is lost"
    LOSE_REPLY = "is carried out, and its reply is lost"
    DELAY = "is carried out `seconds` after its time-out"
    DUPLICATE = "is carried out, and once more `seconds` later"


OF_REQUESTS = frozenset(
    {FaultKind.FAIL, FaultKind.SLOW, FaultKind.LOSE, FaultKind.LOSE_REPLY, FaultKind.DELAY, FaultKind.DUPLICATE}
)

OWNERSHIP = ("list_ownership", "claim_ownership", "renew_ownership", "relinquish_ownership", "ask")
CHECKPOINTS = ("list_checkpoints", "raise_owner_level", "update_checkpoints")
SERVERS = ("ownership", "checkpoints", "hub", "sink")
"""Who is asked. A fault of requests names a method or one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that happens at a time."""

    at: float
    kind: FaultKind
    who: str = ""
    what: str = ""
    seconds: float = 0.0
    number: float = 0.0

    def __str__(self) -> str:
        subject = " ".join(part for part in (self.who, self.what) if part)
        numbers = {"seconds": self.seconds, "number": self.number}
        details = ", ".join(f"{name} {value:.1f}" for name, value in numbers.items() if value)
        return f"{self.at:7.2f}  {subject} {self.kind.value}" + (f" ({details})" if details else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One instance: when it starts, how its clock goes, and what it is set to. `starts_at` None: by a fault."""

    name: str
    starts_at: float | None = 0.0
    rate: float = 1.0
    offset: float = 0.0
    strategy: str = "planned"
    capacity: float = 1.0
    maximum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast things go, in seconds: a request there and back, the time between two batches, and that of one."""

    latency: float = 0.05
    trigger: float = 4.0
    work: float = 1.0
    events: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that a run depends on.

    `ends_at` is when all trouble ends; then the fleet must come to rest. `calm` says that from `calm_from` on, when all
    must be owned and balanced, nothing in the story is a reason to move a partition, and `planned_changes` that none is
    to read an event twice. `moves` is the most that partitions may move, and `bound` the seconds in which all must be
    well after `ends_at`; where they are not given, they follow from the story.
    """

    seed: int
    partitions: int
    parts: tuple[Part, ...]
    faults: tuple[Fault, ...] = ()
    ends_at: float = 60.0
    own_clock: bool = True
    presence: bool = True
    batches: bool = True
    calm: bool = False
    calm_from: float = 38.0
    moves: int | None = None
    bound: float | None = None
    planned_changes: bool = False
    settle_delay: float = 1.0
    pace: Pace = field(default_factory=Pace)

    @property
    def wiped(self) -> bool:
        """Whether a store is wiped or restored, so that owner levels may go back."""
        return any(fault.kind in (FaultKind.WIPE, FaultKind.RESTORE) for fault in self.faults)

    def describe(self) -> str:
        """The story in words, a line for each part and fault."""
        lacks = [name for name in ("own_clock", "presence", "batches") if not getattr(self, name)]
        head = f"seed {self.seed}: {self.partitions} partitions, trouble for {self.ends_at:.0f} s"
        if lacks:
            head += f", a store without {', '.join(lacks)}"
        lines = [head]
        for part in self.parts:
            when = "by a fault" if part.starts_at is None else f"at {part.starts_at:.1f}"
            limit = "" if part.maximum is None else f", at most {part.maximum}"
            lines.append(
                f"  {part.name}: {part.strategy}, starts {when}, clock rate {part.rate:.3f}, "
                f"capacity {part.capacity:g}{limit}"
            )
        return "\n".join([*lines, *(f"  {fault}" for fault in self.faults)])
