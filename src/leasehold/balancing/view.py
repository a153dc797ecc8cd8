"""From a listing of records to what matters for balancing.

Owns the sorting of partitions into mine, free and others', and who takes part:

1. A partition is *mine* if I hold it now, or if its record names my owner id: the reply to a claim of mine
   was lost, or my trust in it lapsed. It is claimed again, at a new owner level.
2. It is *mine* too if its record names my name with another incarnation and I have just started: my
   predecessor's. Later, such a record is a stranger's who took my name, and he is left alone. And it is mine
   if it was handed over to me.
3. It is *free* if it has no record, was relinquished, or its record is expired: older than the partition
   expiration by the store's own clock; in a mixed fleet, where another SDK's processor wrote it, than theirs. When
   the store itself is suspected (it failed or hung a moment ago, so that live owners could not renew), nothing
   counts as expired. A partition that was handed over to a live instance is free only after a while: until then it is
   that instance's.
4. Everything else is *others'*. A partition that a live instance has asked for counts as the asker's already,
   so that no other instance asks for it too; a partition that I have asked for is in `asked`.
5. The *members* are the instances whose presence or any of whose ownerships is not expired, and I. One that has
   not been heard of since another of its name announced itself is that one's predecessor: it does not count, and
   what it owns counts as its successor's. Once I run, nobody is mine: my record may have been made anew, and then
   looks later than it is. Nor do instances of another pipeline count: one of the two is refused.
6. Capacities count only where all members go by them, which is where all of them run `planned`. Who owns something
   and has not announced itself, where others have, is taken for another SDK's processor: it goes by no quota.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from leasehold.balancing.quotas import Member
from leasehold.model import OwnerId, Ownership, OwnershipListing, Presence, owner_name


@dataclass(frozen=True, slots=True)
class View:
    """One instance's view of its group.

    `held` are the partitions I hold and trust and that no instance has asked for; `reclaimable` those that are mine
    by record only (rules 1 and 2); `free` those that any instance may take; `others` those of live owners, by owner id;
    `asked` those I have asked for, with who owns them. All sorted. `members` are all who take part, with what
    they declare: where they are not given, the owners and I. `known` says whether others count me.
    `expired` are the owners whose partitions count as free for that reason alone, if no other owner is alive.
    `announced` are the instances whose presence is there, so that they can be asked. `doubtful` are the free
    partitions whose last owners came to a bad end (see `suspects`).
    """

    held: tuple[str, ...]
    reclaimable: tuple[str, ...]
    free: tuple[str, ...]
    others: tuple[tuple[str, tuple[str, ...]], ...]
    asked: Mapping[str, str] = field(default_factory=dict)
    me: str = "me"
    members: Mapping[str, Member] = field(default_factory=dict)
    known: bool = True
    expired: frozenset[str] = frozenset()
    announced: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.members:
            everybody = [self.me, *(owner for owner, _ in self.others)]
            object.__setattr__(self, "members", dict.fromkeys(everybody, Member()))

    @property
    def partition_count(self) -> int:
        """How many partitions there are."""
        return self.mine_count + len(self.free) + sum(len(partitions) for _, partitions in self.others)

    @property
    def mine_count(self) -> int:
        """How many partitions are mine, or asked for by me."""
        return len(self.held) + len(self.reclaimable) + len(self.asked)

    @property
    def instance_count(self) -> int:
        """How many instances share the partitions."""
        return len(self.members)

    @property
    def fair_share(self) -> tuple[int, int]:
        """`(minimum, extra)`: every instance should own `minimum`, and `extra` of them one more."""
        return divmod(self.partition_count, self.instance_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """What an instance knows of itself, and the listing does not say."""

    owner_id: OwnerId
    held: Collection[str]
    presence: Presence
    just_started: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ages at which things end, in seconds: an ownership or presence, and what is kept for a successor.

    `foreign` is for ownership records that other SDKs' processors wrote; None where there are none.
    """

    expiration: float
    reservation: float
    foreign: float | None = None

    def of(self, record: Ownership | Presence) -> float:
        """The age at which this record ends."""
        if self.foreign is not None and isinstance(record, Ownership) and record.foreign:
            return self.foreign
        return self.expiration


def make_view(
    partition_ids: Iterable[str], listing: OwnershipListing, *, me: Me, limits: Limits, store_suspected: bool
) -> View:
    """Sort the partitions by the rules above."""
    crowd = _Crowd(listing, me, limits, store_suspected)
    asks = {ask.partition: ask for ask in listing.asks}
    records = {record.partition: record for record in listing.records}
    mine = str(me.owner_id)
    held: list[str] = []
    reclaimable: list[str] = []
    free: list[str] = []
    others: dict[str, list[str]] = {}
    asked: dict[str, str] = {}
    for partition in sorted({*partition_ids, *me.held}):
        record = records.get(partition)
        owner = _owner(record, listing.as_of, crowd, limits, me, held=partition in me.held)
        ask = asks.get(partition)
        asker = ask.asker if ask and record and record.owner_id and ask.owner_level == record.owner_level else ""
        if not owner:
            free.append(partition)
        elif asker in crowd.members and asker != owner and asker != mine:
            others.setdefault(asker, []).append(partition)
        elif owner == mine:
            (held if partition in me.held else reclaimable).append(partition)
        elif asker == mine:
            asked[partition] = owner
        else:
            others.setdefault(owner, []).append(partition)
    return View(
        held=tuple(held),
        reclaimable=tuple(reclaimable),
        free=tuple(free),
        others=tuple((owner, tuple(theirs)) for owner, theirs in sorted(others.items())),
        asked=asked,
        me=mine,
        members=crowd.members,
        known=mine in crowd.announced or bool(held or reclaimable),
        expired=frozenset() if crowd.owning else crowd.gone,
        announced=crowd.announced,
        doubtful=frozenset(p for p in free if p in records and records[p].failures),
    )


def is_expired(record: Ownership | Presence, as_of: float, expiration: float) -> bool:
    """Whether a record has gone without renewal for longer than `expiration` seconds, by the store's clock."""
    return as_of - record.last_modified > expiration


def _owner(record: Ownership | None, as_of: float, crowd: _Crowd, limits: Limits, me: Me, *, held: bool) -> str:
    """The member that a partition belongs to, by rules 1 to 3 and 5; `""` if it is free."""
    mine = str(me.owner_id)
    if held:
        return mine
    if record is None:
        return ""
    named = record.owner_id or record.successor
    if named == mine or (me.just_started and named and owner_name(named) == me.owner_id.name):
        return mine
    if record.owner_id:
        return crowd.heir(record.owner_id) if record.owner_id in crowd.owning else ""
    successor = crowd.heir(record.successor)
    fresh = as_of - record.last_modified <= limits.reservation
    return successor if fresh and successor in crowd.members else ""


class _Crowd:
    """Which members are present, by rules 5 and 6."""

    def __init__(self, listing: OwnershipListing, me: Me, limits: Limits, store_suspected: bool) -> None:
        def alive(record: Ownership | Presence) -> bool:
            return store_suspected or not is_expired(record, listing.as_of, limits.of(record))

        mine = str(me.owner_id)
        self._running = "" if me.just_started else mine
        owned = [record for record in listing.records if record.owner_id and record.partition not in me.held]
        if me.just_started:
            owned = [record for record in owned if owner_name(record.owner_id) != me.owner_id.name]
        self.owning = {record.owner_id for record in owned if alive(record)} - {mine}
        self.gone = frozenset({record.owner_id for record in owned} - self.owning - {mine})
        present = [presence for presence in listing.presences if alive(presence) and not _refused(presence, me)]
        self._newest: dict[str, Presence] = {}
        for presence in sorted(present, key=lambda one: (one.created, one.owner_id)):
            self._newest[owner_name(presence.owner_id)] = presence
        current = [one for one in present if not self._replaced(one)]
        self.announced = frozenset(presence.owner_id for presence in current)
        declared = {presence.owner_id: presence for presence in current} | {mine: me.presence}
        everybody = {*declared, *(self.heir(owner) for owner in self.owning)}
        weighted = all(owner in declared and declared[owner].strategy == "planned" for owner in everybody)
        self.members: dict[str, Member] = {}
        for owner in sorted(everybody):
            said = declared.get(owner)
            capacity = said.capacity if said and weighted else 1.0
            by_quota = bool(said) or not self.announced
            self.members[owner] = Member(capacity, said.maximum if said else None, by_quota)

    def heir(self, owner_id: str) -> str:
        """Who counts for this instance: itself, or its successor by name."""
        newest = self._newest.get(owner_name(owner_id))
        return owner_id if newest is None or owner_id in self.announced else newest.owner_id

    def _replaced(self, presence: Presence) -> bool:
        newest = self._newest[owner_name(presence.owner_id)]
        if newest.owner_id in (self._running, presence.owner_id):
            return False
        return presence.last_modified < newest.created


def _refused(presence: Presence, me: Me) -> bool:
    """Whether an instance works for another pipeline than I do."""
    return bool(presence.pipeline and me.presence.pipeline and presence.pipeline != me.presence.pipeline)
