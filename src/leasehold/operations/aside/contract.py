"""What a kind of set-aside things offers to an operator, and what all kinds have in common.

Owns the values (`Entry`, `EntryFilter`, `Done`), what a choice means, and the way in of a file. A kind (`Aside`)
stands on what a sink or a queue offers, and has their rules. Entries come in the order of that, in pieces.

What a mended body means, for every kind that takes one: it is tried in place of the body that is there, by the rules of
a retry, and nothing else of the entry changes. A line whose body is as it is there is a retry without a mended body.
Left as they are, each with the reason: a line of what is not there any more, or was set aside anew since the export;
a body that says another value of the table's key columns than the one before, as far as both can be read, since an
entity has its own place among partitions; and whatever the kind refuses.

Concurrency: beside running instances, and beside others who do the same. Killed, or stopped for a minute, at any line:
the pieces that were done are done, of the others nothing is changed; run it again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from leasehold.errors import ConfigError, UsageError
from leasehold.operations.aside.exported import ExportedFile, ExportedLine, body_as_bytes
from leasehold.operations.aside.reasons import VALUE, ReasonGroup, ReasonGroups, form_of
from leasehold.sinks.set_aside import Selection

T = TypeVar("T")
AT_A_TIME = 1000
"""Entries that are read, or changed, together."""
FEW = 4
"""Pieces of a file that are looked up one by one: each may take a look at all that is set aside. Of a larger file all
entries are gone through, once."""
GONE = "it is not there any more, or was set aside anew since it was exported"


@dataclass(frozen=True, slots=True)
class Entry:
    """One row, event or message. `record` is all of it as JSON has it, and `kept` what its sink or queue has of it.

    since   when it was set aside, in seconds since 1970
    mended  the body to try in place of its own
    """

    number: int
    reason: str
    since: float
    body: object
    record: Mapping[str, object]
    kept: Any
    hub: str | None = None
    partition: str | None = None
    mended: bytes | None = None

    def left(self, why: str) -> Left:
        """This one, left as it is."""
        return Left(self.hub, self.partition, self.number, why)


@dataclass(frozen=True, slots=True)
class Left:
    """What was chosen and stays as it is, and why."""

    hub: str | None
    partition: str | None
    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """What became of all that was chosen: how many by outcome, the most wanted one first, and what was left."""

    counts: Mapping[str, int]
    left: Sequence[Left] = ()


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Which entries: those that meet all that is said. Without anything: all.

    events  partitions and numbers; where the number alone is a name, None and numbers
    reason  a part of the reason, or of its form, in the case as given
    key     `[NAME=]VALUE` for each key column
    since   the earliest time, in seconds since 1970
    """

    events: frozenset[tuple[str | None, int]] | None = None
    reason: str | None = None
    hub: str | None = None
    partition: str | None = None
    key: tuple[str, ...] = ()
    since: float | None = None

    @property
    def selection(self) -> Selection:
        """As far as a sink can choose: of the text that a reason has, by what is in it as it is in the form."""
        events = None if self.events is None else frozenset((str(name), number) for name, number in self.events)
        words = [] if self.reason is None else self.reason.replace(VALUE, " ").split()
        return Selection(events, max(words, key=len, default=None), self.hub)

    @property
    def is_of_sink(self) -> bool:
        """Whether a sink can choose all of it, but for the reason."""
        return self.partition is None and not self.key and self.since is None

    def has_reason(self, reason: str) -> bool:
        """Whether this reason is meant."""
        return self.reason is None or self.reason in reason or self.reason in form_of(reason)

    def has(self, entry: Entry) -> bool:
        """Whether it is meant, but for its key."""
        return (
            (self.events is None or not self.events.isdisjoint(((entry.partition, entry.number), (None, entry.number))))
            and self.has_reason(entry.reason)
            and (self.hub is None or entry.hub == self.hub)
            and (self.partition is None or entry.partition == self.partition)
            and (self.since is None or entry.since >= self.since)
        )


@dataclass(frozen=True, slots=True)
class Survey:
    """How much there is of a choice, by the form of the reasons, and its first entries."""

    total: int
    groups: Sequence[ReasonGroup]
    entries: Sequence[Entry]


class Aside(ABC):
    """One kind of what is set aside, in one place: `where`. The fields `names` of a record name it."""

    kind: ClassVar[str]
    noun: ClassVar[str]
    names: ClassVar[tuple[str, ...]]
    where: str

    @abstractmethod
    def _entries(self, choice: EntryFilter) -> Iterator[Entry]:
        """The entries, as they are when their turn comes; more than the choice where only that can say."""

    @abstractmethod
    def _about(self, key: Sequence[str]) -> Callable[[Entry], bool]:
        """What says whether an entry is about the entity of this key. Raises `ConfigError`."""

    def beside(self) -> Iterable[tuple[str, tuple[str, str], Sequence[Mapping[str, object]]]]:
        """Records of what belongs to the kind and is not set aside: their name in JSON, what one is (a noun, and what
        is said behind it), and they."""
        return ()

    def refusal(self, entry: Entry, body: bytes | None) -> str | None:
        """Why this cannot be tried in place of the body of an entry."""
        return f"a {self.noun} keeps the body that it has: export it, drop it, and send it anew"

    def retry(self, choice: EntryFilter, file: ExportedFile | None, say: Callable[[int], object]) -> Done:
        """Try the entries again, or those of the file. `say` is told how many were gone through."""
        raise UsageError(f"a {self.noun} cannot be tried again")

    def drop(self, choice: EntryFilter, because: str) -> Done:
        """Remove the entries for good."""
        raise UsageError(f"a {self.noun} cannot be dropped")

    def chosen(self, choice: EntryFilter) -> Iterator[Entry]:
        """The entries of a choice."""
        about = self._about(choice.key) if choice.key else None
        return (entry for entry in self._entries(choice) if choice.has(entry) and (about is None or about(entry)))

    def survey(self, choice: EntryFilter, limit: int) -> Survey:
        """All that there is of a choice, counted, and the first of it."""
        groups, first = ReasonGroups(), list[Entry]()
        for entry in self.chosen(choice):
            groups.add(entry.reason, entry.since, entry.since)
            if len(first) < limit:
                first.append(entry)
        return Survey(groups.total, list(groups), first)

    def taken(self, choice: EntryFilter, file: ExportedFile | None, untouched: list[Left]) -> Iterator[Entry]:
        """The entries to be tried: of a choice, or of a file, with its bodies. What is not goes into `untouched`."""
        if file is None:
            yield from self.chosen(choice)
            return
        missing = dict(file.lines)
        some = pieces(sorted(file.events, key=lambda event: (event[0] or "", event[1])))
        choices = [EntryFilter(events=frozenset(events)) for events in some]
        for choice_of_file in choices if len(choices) <= FEW else [EntryFilter()]:
            for entry in self.chosen(choice_of_file):
                if (line := missing.pop(file.name_of(entry.record), None)) is None:
                    continue
                judged = self.mended(entry, line)
                if isinstance(judged, Left):
                    untouched.append(judged)
                else:
                    yield judged
        untouched += [Left(line.hub, line.partition, line.number, GONE) for line in missing.values()]

    def mended(self, entry: Entry, line: ExportedLine) -> Entry | Left:
        """An entry with the body that its line has, or why it cannot have it."""
        if line.body == body_as_bytes(entry.body):
            return entry
        why = self.refusal(entry, line.body)
        return replace(entry, mended=line.body) if why is None else entry.left(why)


def pieces(things: Iterable[T], size: int = AT_A_TIME) -> Iterator[list[T]]:
    """All of these, at most this many at a time."""
    some: list[T] = []
    for thing in things:
        some.append(thing)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some


def check_because(because: str) -> None:
    """Refuse to drop what is noted without saying why. Raises `ConfigError`."""
    if not because.strip():
        raise ConfigError("--because", because, "a text that is not empty", "Say why these events are not wanted")


def seconds_of(text: object) -> float:
    """A time that is kept as ISO 8601 text, in seconds since 1970; 0 for what somebody else has written there."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def parse_event(text: str) -> tuple[str, int]:
    """`PARTITION:SEQUENCE_NUMBER` as its two parts. Raises `ConfigError`."""
    partition, _, number = text.rpartition(":")
    if not (partition and _is_number(number)):
        rule = "an event is PARTITION:SEQUENCE_NUMBER"
        raise ConfigError("--event", text, rule, "For example 3:1042, as the list has it")
    return partition, int(number)


def parse_number(text: str) -> tuple[None, int]:
    """The number of what has no partition. Raises `ConfigError`."""
    if not _is_number(text):
        raise ConfigError("--event", text, "a number", "For example 42, as the list has it")
    return None, int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 2**63
