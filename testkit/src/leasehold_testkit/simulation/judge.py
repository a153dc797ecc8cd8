"""What must hold after every step, and who says so when it does not.

Owns the rules below and what has to be remembered to check them. It sees every request at the moment it is carried
out and every hold at the moment it is gained or prolonged, and knows what no instance does: true time, who lives, and
what was applied.

1. At most one instance trusts itself with a partition, except between a steal and the victim's next full cycle; and
   trust ends before the store lets others take the partition.
2. An owner level rises at every acquisition, is in the checkpoint record before it is held, and is held without a gap.
3. An event takes effect once, and none is skipped.
4. A checkpoint never goes back, and is never ahead of the effects.
5. Nobody writes another's record. A live owner that can be asked is not stolen from unasked; what is handed over was
   asked for, is drained, and is the successor's for a while. What was won is not acquired again while it is trusted.
6. In a calm story no partition leaves its owner; in one of planned changes no event is read twice.

A store that is wiped or restored may take levels back: then rule 2 and 4 begin anew, rule 1 has one more exception as
after a steal, and the sink must refuse loudly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leasehold.model import BEFORE_FIRST, Ask, Checkpoint, Ownership, owner_name
from leasehold.ownership import Hold
from leasehold_testkit.simulation.rules import Rule, Violation
from leasehold_testkit.simulation.surroundings import Landing, Process, Surroundings

EXACTLY = 1e-6
"""Times are sums of floats."""
PATIENCE = 20.0
"""Seconds until every instance has had a cycle, by the slowest clock and with the slowest requests."""
AT_ONCE = 3.0
"""Seconds that a cycle takes, where no request has a fault."""


class Judge:
    """Checks one world."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._levels: dict[str, int] = {}
        self._asked: dict[tuple[str, int, str], float] = {}
        self._vouched: dict[tuple[str, str], float] = {}
        self._superseded: set[tuple[str, int]] = set()
        self._gone: dict[str, float] = {}
        self._asked_ever: set[tuple[str, str]] = set()
        self._excused: dict[tuple[str, str, int], float] = {}
        self._won: dict[tuple[str, str, str], float] = {}
        self._settled = False
        self.applied: dict[str, int] = {}
        self.read: dict[str, int] = {}
        self._read_at: dict[tuple[str, int], int] = {}
        self.acquisitions = 0
        self.acquired_at = 0.0
        self.moves = 0
        self.read_twice = 0
        self._last_owner: dict[str, str] = {}
        self._wiped_at: dict[str, float] = {}

    def fail(self, rule: Rule, text: str) -> None:
        """A rule does not hold."""
        raise Violation(rule, text)

    # Requests, as they are carried out

    def claimed(
        self, who: Process, landing: Landing, before: Mapping[str, Ownership | None], won: Sequence[Ownership]
    ) -> None:
        """Claims were carried out."""
        world = self._world
        wiped = landing.sent <= max(self._wiped_at.values(), default=-1.0)
        for record in won:
            partition, earlier = record.partition, before[record.partition]
            seen = max(self._levels.get(partition, 0), earlier.owner_level if earlier else 0)
            if record.owner_level <= seen and not wiped:
                self.fail(Rule.LEVEL_FELL, f"{who} claims {partition} at level {record.owner_level} after {seen}")
            self._levels[partition] = max(seen, record.owner_level)
            if earlier is not None:
                age = world.now - landing.written[partition]
                if earlier.owner_id not in ("", record.owner_id) and age <= world.settings.partition_expiration:
                    self._excused[partition, earlier.owner_id, earlier.owner_level] = world.now
                if not wiped:
                    self._acquired(who, landing, earlier, record, age)
            self._vouch(landing, record)
            if not landing.late:
                self._won[partition, record.owner_id, record.nonce] = landing.sent
            self._count_move(partition, record)

    def _acquired(self, who: Process, landing: Landing, earlier: Ownership, record: Ownership, age: float) -> None:
        """Rule 5 for a claim that has won over an earlier record, of this age."""
        partition, expiration = record.partition, self._world.settings.partition_expiration
        if earlier.owner_id == record.owner_id:
            until = who.ever_held.get((partition, earlier.owner_level), -1.0)
            if self._world.story.calm and landing.sent < until - EXACTLY:
                self.fail(
                    Rule.ACQUIRED_TWICE, f"{who} claims {partition} again, which it might trust until {until:.1f}"
                )
            since = self._won.get((partition, earlier.owner_id, earlier.nonce))
            key = partition, earlier.owner_level
            # Above a checkpoint that was put back another may have raised it, at any level.
            overtaken = key in self._superseded and "checkpoints" in self._wiped_at
            never_held = key not in who.ever_held and not overtaken
            if since is not None and never_held and landing.sent < since + who.true_span(self._world.trust) - EXACTLY:
                self.fail(Rule.ACQUIRED_TWICE, f"{who} claims {partition} again, which it has won {age:.1f} s ago")
        elif earlier.owner_id and age <= expiration:
            asked = (partition, record.owner_id) in self._asked_ever
            if not asked and self._listens(who, earlier.owner_id):
                self.fail(Rule.STOLEN_UNASKED, f"{who} takes {partition} from {earlier.owner_id} without an ask")
        elif not earlier.owner_id and earlier.successor not in ("", record.owner_id):
            reserved = age <= self._world.reservation - EXACTLY
            if reserved and self._listens(who, earlier.successor):
                self.fail(Rule.RESERVED, f"{who} takes {partition}, handed to {earlier.successor} {age:.1f} s ago")

    def _listens(self, who: Process, other: str) -> bool:
        """Whether `who` must know that the other is there: by a presence that has been fresh since before its cycle."""
        world = self._world
        present = world.ownership.presence(other)
        if present is None or not world.story.own_clock or world.started[owner_name(other)] > 1:
            return False
        age = world.now - (present.last_modified - world.store_clock.start)
        return world.now - who.cycle_started <= age <= world.settings.partition_expiration

    def _count_move(self, partition: str, record: Ownership) -> None:
        self.acquisitions += 1
        self.acquired_at = self._world.now
        name = owner_name(record.owner_id)
        before = self._last_owner.get(partition, "")
        if before and before != name:
            self.moves += 1
            most = self._world.story.moves
            if self._settled or (most is not None and self.moves > most):
                self.fail(Rule.MOVED, f"{partition} went from {before} to {name}")
        self._last_owner[partition] = name

    def _vouch(self, landing: Landing, record: Ownership) -> None:
        """From the start of this request on the owner may trust itself."""
        key = record.partition, record.owner_id
        self._vouched[key] = max(landing.sent, self._vouched.get(key, landing.sent))

    def renewed(
        self, who: Process, landing: Landing, before: Mapping[str, Ownership | None], renewed: Sequence[Ownership]
    ) -> None:
        """Renewals were carried out."""
        for record in renewed:
            self._vouch(landing, record)
            earlier = before[record.partition]
            same = earlier is not None and (earlier.owner_id, earlier.owner_level) == (
                record.owner_id,
                record.owner_level,
            )
            if not same or record.owner_id != who.id:
                self.fail(Rule.NOT_ITS_OWN, f"{who} renews {record.partition} of {earlier}")

    def relinquished(self, who: Process, before: Mapping[str, Ownership | None], records: Sequence[Ownership]) -> None:
        """Records were relinquished."""
        for record in records:
            partition, earlier = record.partition, before[record.partition]
            if earlier is None or (earlier.owner_id, earlier.owner_level) != (who.id, record.owner_level):
                self.fail(Rule.NOT_ITS_OWN, f"{who} gives up {partition}, which is {earlier}")
            lost = self._world.lost_at.get((partition, who.id), self._world.now)
            if not record.successor:
                if not who.leaving and self._awaited(record, lost):
                    self.fail(Rule.NOT_HANDED, f"{who} gives up {partition}, for which there is an ask")
                continue
            self._handed(who, record, lost)

    def _awaited(self, record: Ownership, lost: float) -> bool:
        """Whether a live instance had asked for it before it was let go, and asks still."""
        for ask in self._world.ownership.asks_for(record.partition, record.owner_level):
            present = self._world.ownership.presence(ask.asker)
            asked = self._asked.get((ask.partition, ask.owner_level, ask.asker))
            if present is not None and asked is not None and asked < lost - PATIENCE and not record.last_error:
                return not self._world.story.wiped
        return False

    def _handed(self, who: Process, record: Ownership, lost: float) -> None:
        """Rule 5 for a hand-over."""
        world, partition = self._world, record.partition
        if (partition, record.owner_level, record.successor) not in self._asked:
            self.fail(Rule.HANDED_UNASKED, f"{who} hands {partition} to {record.successor} unasked")
        here = world.ownership.presence(record.successor) is not None
        if not here and world.now - self._gone.get(record.successor, world.now) > PATIENCE:
            self.fail(Rule.HANDED_UNASKED, f"{who} hands {partition} to {record.successor}, which has left")
        checkpoint = world.checkpoints.checkpoint(partition)
        reached = checkpoint.sequence_number if checkpoint else BEFORE_FIRST
        read = self._read_at.get((partition, record.owner_level), BEFORE_FIRST)
        if reached < read and not world.story.wiped:
            self.fail(Rule.NOT_DRAINED, f"{who} hands {partition} over at {reached}, has read to {read}")
        if world.story.planned_changes and world.now - lost > AT_ONCE:
            self.fail(Rule.SLOW_HAND_OVER, f"{who} hands {partition} over {world.now - lost:.1f} s after it let go")

    def withdrawn(self, owner_ids: Sequence[str]) -> None:
        """Presences were withdrawn."""
        self._gone.update(dict.fromkeys(owner_ids, self._world.now))

    def announced(self, starts: Sequence[Checkpoint], standing: Sequence[Checkpoint]) -> None:
        """Owner levels were raised, or found higher already."""
        for start, stands in zip(starts, standing, strict=True):
            if start.owner_level < stands.owner_level:
                self._superseded.add((start.partition, start.owner_level))

    def asked(self, asks: Sequence[Ask]) -> None:
        """Asks were written."""
        self._asked.update({(ask.partition, ask.owner_level, ask.asker): self._world.now for ask in asks})

    def asks(self, asks: Sequence[Ask]) -> None:
        """Asks were sent."""
        self._asked_ever.update((ask.partition, ask.asker) for ask in asks)

    def checkpointed(self, before: Mapping[str, Checkpoint | None], after: Mapping[str, Checkpoint | None]) -> None:
        """Rule 4, for a write to the checkpoint store."""
        for partition, earlier in before.items():
            later = after[partition]
            if later is None:
                continue
            # The store lets a higher level step back, which happens only above a checkpoint that was put back.
            forgiven = (
                "checkpoints" in self._wiped_at and earlier is not None and later.owner_level > earlier.owner_level
            )
            if earlier is not None and (
                later.owner_level < earlier.owner_level
                or (later.sequence_number < earlier.sequence_number and not forgiven)
            ):
                self.fail(Rule.CHECKPOINT_BACK, f"of {partition} from {_place(earlier)} to {_place(later)}")
            if later.sequence_number > self.applied.get(partition, BEFORE_FIRST) and not self._world.story.wiped:
                self.fail(
                    Rule.CHECKPOINT_AHEAD, f"of {partition} at {_place(later)}, applied {self.applied.get(partition)}"
                )

    # The work

    def reads(self, who: Process, partition: str, level: int, first: int, last: int) -> None:
        """Events are read."""
        self._read_at[partition, level] = max(last, self._read_at.get((partition, level), BEFORE_FIRST))
        known = self.read.get(partition, BEFORE_FIRST)
        twice = max(0, min(last, known) - first + 1)
        self.read_twice += twice
        self.read[partition] = max(known, last)
        if twice and self._world.story.planned_changes:
            self.fail(Rule.READ_TWICE, f"{who} reads {twice} events of {partition} again, from {first}")

    def effect(self, partition: str, first: int, last: int) -> None:
        """Events took effect in the sink. Rule 3."""
        applied = self.applied.get(partition, BEFORE_FIRST)
        if first <= applied:
            self.fail(Rule.EFFECT_TWICE, f"{partition} from {first}, although {applied} is applied")
        if first > applied + 1:
            self.fail(Rule.SKIPPED, f"{partition} goes on at {first} after {applied}")
        self.applied[partition] = last

    def levels_went_back(self, who: Process, error: Exception) -> None:
        """The sink has refused loudly."""
        if not self._world.story.wiped:
            self.fail(Rule.FALSE_ALARM, f"{who}: {error}")

    # Holds

    def holds(self, who: Process, held: Mapping[str, Hold], seen: Mapping[str, Hold]) -> None:
        """An instance trusts itself with `held`, after `seen`: rules 1 and 2."""
        for partition, hold in held.items():
            known = seen.get(partition)
            if known is hold or (known is not None and known.trusted_until == hold.trusted_until):
                continue
            self._trusts(who, partition, hold)
            if known is None or known.owner_level != hold.owner_level:
                self._gains(who, partition, hold)

    def _trusts(self, who: Process, partition: str, hold: Hold) -> None:
        world, level = self._world, hold.owner_level
        key = partition, level
        until = who.ever_held.get(key)
        if until is not None and world.now >= until + EXACTLY and not self._wiped_at:
            self.fail(Rule.HELD_WITH_A_GAP, f"{who} holds {partition} at level {level} again")
        true_end = who.true_time(hold.trusted_until)
        who.ever_held[key] = true_end
        record = world.ownership.record(partition)
        vouched = self._vouched.get((partition, who.id))
        if vouched is None or true_end > vouched + who.true_span(world.trust) + EXACTLY:
            text = f"{who} trusts {partition} until {true_end:.2f}, by a request that was sent at {vouched}"
            self.fail(Rule.TRUST_TOO_LONG, text)
        same = record is not None and (record.owner_id, record.nonce) == (who.id, hold.record.nonce)
        if same and (partition, who.id, level) not in self._excused:
            ends = world.ownership.written[partition] + world.settings.partition_expiration
            if true_end > ends + EXACTLY:
                self.fail(
                    Rule.TRUST_TOO_LONG,
                    f"{who} trusts {partition} until {true_end:.2f}, others may take it at {ends:.2f}",
                )
        for other in world.alive():
            if other is who or partition not in other.seen:
                continue
            theirs = other.manager.held().get(partition)
            if theirs is None:
                continue
            if (partition, who.id, level) in self._excused or (
                partition,
                other.id,
                theirs.owner_level,
            ) in self._excused:
                continue
            self.fail(
                Rule.TWO_OWNERS, f"{partition} of {who} at level {level} and {other} at level {theirs.owner_level}"
            )

    def _gains(self, who: Process, partition: str, hold: Hold) -> None:
        world = self._world
        checkpoint = world.checkpoints.checkpoint(partition)
        if world.story.wiped:
            return
        if (partition, hold.owner_level) in self._superseded:
            self.fail(Rule.SUPERSEDED, f"{who} holds {partition} at level {hold.owner_level}")
        if checkpoint is None or checkpoint.owner_level < hold.owner_level:
            self.fail(
                Rule.UNANNOUNCED,
                f"{who} holds {partition} at level {hold.owner_level}, checkpoint {_place(checkpoint)}",
            )
        if hold.start > self.applied.get(partition, BEFORE_FIRST) + 1:
            self.fail(Rule.SKIPPED, f"{who} starts {partition} at {hold.start}")

    def cycle_ended(self, who: Process, started: float) -> None:
        """A full cycle has gone well: who was stolen from before it knows now."""
        held = who.manager.held()
        for key, stolen in list(self._excused.items()):
            partition, owner, level = key
            if owner == who.id and stolen < started:
                del self._excused[key]
                hold = held.get(partition)
                record = self._world.ownership.record(partition)
                own = (
                    record is not None
                    and hold is not None
                    and (record.owner_id, record.nonce) == (owner, hold.record.nonce)
                )
                if hold is not None and hold.owner_level == level and not own and not self._world.story.wiped:
                    self.fail(Rule.TWO_OWNERS, f"{who} trusts {partition} after the cycle that followed its loss")

    # Turning points

    def settled(self) -> None:
        """From now on nothing may move, in a calm story."""
        self._settled = True

    def wiped(self, what: str) -> None:
        """A store is about to lose its content, or to get an earlier one."""
        now = self._world.now
        self._wiped_at[what] = now
        self._levels.clear()
        self._won.clear()
        for one in self._world.alive():
            one.ever_held.clear()
        if what != "ownership":
            return
        for record in self._world.ownership.records():
            self._excused[record.partition, record.owner_id, record.owner_level] = now
        for one in self._world.alive():
            for partition, hold in one.seen.items():
                self._excused[partition, one.id, hold.owner_level] = now


def _place(checkpoint: Checkpoint | None) -> str:
    return "none" if checkpoint is None else f"{checkpoint.sequence_number} (level {checkpoint.owner_level})"
