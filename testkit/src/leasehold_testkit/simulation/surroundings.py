"""What the parts of a run see of each other: each is made for the world, and the world is made of them.

Owns the interfaces between an instance, the network, the judge and the world, so that each part can be read, and put
in place of another, without the others. Holds no state but a request's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar

from leasehold.config import OwnershipSettings
from leasehold.errors import LeaseholdError
from leasehold.model import Ask, Checkpoint, OwnerId, Ownership
from leasehold.ownership import Hold
from leasehold.stores.base import StoreFeatures
from leasehold_testkit.simulation.clock import MachineClock
from leasehold_testkit.simulation.hub import SimulatedHub
from leasehold_testkit.simulation.scheduler import Party, Scheduler
from leasehold_testkit.simulation.sink import SimulatedSink
from leasehold_testkit.simulation.stores import SimulatedStore
from leasehold_testkit.simulation.story import Part, Story

T = TypeVar("T")


@dataclass(slots=True)
class Landing:
    """A request on its way: when it was sent, whether it lands after its caller has given up, and what came of it.

    `written` is when the records of it were last written before.
    """

    sent: float
    late: bool = False
    results: list[Any] = field(default_factory=list)
    error: Exception | None = None
    written: dict[str, float] = field(default_factory=dict)


class Process(Party):
    """An instance of the fleet, as the rest of the world sees it."""

    id: str
    settings: OwnershipSettings
    chance: Random
    manager: Any
    seen: dict[str, Hold]
    ever_held: dict[tuple[str, int], float]
    leaving: bool
    cycle_started: float
    """When its last cycle began, in true time; so are those that follow. Negative: never."""
    hung_until: float
    aware_since: float
    worked_since: float

    def true_time(self, monotonic: float) -> float:
        """When its clock shows that."""
        raise NotImplementedError

    def true_span(self, seconds: float) -> float:
        """How long it truly takes until its clock has gone on by this many seconds."""
        raise NotImplementedError

    def held(self) -> dict[str, Hold]:
        """What it trusts itself with; nothing if it refuses to work."""
        raise NotImplementedError


class Requests(Protocol):
    """The way of requests to the servers."""

    def request(self, who: Process, server: str, method: str, parts: Sequence[Callable[[Landing], T]]) -> list[T]: ...

    def recover(self) -> None: ...


class Witness(Protocol):
    """Who is shown what happens, and says so when it must not."""

    acquisitions: int
    applied: dict[str, int]

    def claimed(
        self, who: Process, landing: Landing, before: Mapping[str, Ownership | None], won: Sequence[Ownership]
    ) -> None: ...

    def renewed(
        self, who: Process, landing: Landing, before: Mapping[str, Ownership | None], renewed: Sequence[Ownership]
    ) -> None: ...

    def relinquished(
        self, who: Process, before: Mapping[str, Ownership | None], records: Sequence[Ownership]
    ) -> None: ...

    def withdrawn(self, owner_ids: Sequence[str]) -> None: ...

    def announced(self, starts: Sequence[Checkpoint], standing: Sequence[Checkpoint]) -> None: ...

    def asked(self, asks: Sequence[Ask]) -> None: ...

    def asks(self, asks: Sequence[Ask]) -> None: ...

    def checkpointed(self, before: Mapping[str, Checkpoint | None], after: Mapping[str, Checkpoint | None]) -> None: ...

    def reads(self, who: Process, partition: str, level: int, first: int, last: int) -> None: ...

    def levels_went_back(self, who: Process, error: Exception) -> None: ...

    def cycle_ended(self, who: Process, started: float) -> None: ...

    def settled(self) -> None: ...


class Surroundings(Protocol):
    """The world of a run, as its parts see it."""

    story: Story
    scheduler: Scheduler
    store_clock: MachineClock
    features: StoreFeatures
    ownership: SimulatedStore
    checkpoints: SimulatedStore
    hub: SimulatedHub
    sink: SimulatedSink
    settings: OwnershipSettings
    trust: float
    reservation: float
    parts: dict[str, Part]
    started: Counter[str]
    cycles: int
    claims: int
    lost_claims: int
    lost_at: dict[tuple[str, str], float]
    repairing: bool

    @property
    def expected_errors(self) -> tuple[type[LeaseholdError], ...]: ...

    @property
    def judge(self) -> Witness: ...

    @property
    def network(self) -> Requests: ...

    @property
    def now(self) -> float: ...

    def alive(self) -> Iterable[Process]: ...

    def note(self, who: object, what: str, detail: object) -> None: ...

    def make_manager(self, who: Any, owner_id: OwnerId) -> Any: ...

    def start(self, name: str) -> None: ...

    def remove(self, who: Any) -> None: ...

    def fails(self, who: Any) -> None: ...
