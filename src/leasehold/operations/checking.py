"""What is looked at before a pipeline's first start, and what has to be done first: one finding each.

Owns the questions that need no Spark, and the time that each may take. Every question is asked in a thread of its own:
one that has no answer in time is a finding, and the thread is left behind, so that a part which is away holds up
nobody. Asked from the driver and, by the same functions, from a task. Nothing is made or changed, but for a presence
record of the time of the question, by which it is seen whether this user may write.

Concurrency: instances may be running; they see a presence without partitions for a moment, in a consumer group of its
own that nobody reads (`PROBE_GROUP`). Killed at any line, that record is left, and expires like that of an instance.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from leasehold.backends import masked
from leasehold.errors import AlreadyInUse, LeaseholdError, SinkError, UsageError, Verdict
from leasehold.hubs import open_hub
from leasehold.hubs.base import Hub
from leasehold.model import OwnerId, PartitionProperties, PositionKind, Positions, Presence, RecordKind
from leasehold.operations.asking_rights import asked_for, notes_of, said_of, summary_of
from leasehold.operations.rights import Use
from leasehold.ownership.starting import check_binding, check_levels, check_reset
from leasehold.ownership.unusable_records import MEANS
from leasehold.printable import counted, excerpt
from leasehold.queues import BACKENDS as QUEUES
from leasehold.queues import open_queue
from leasehold.sinks.base import Sink
from leasehold.sinks.features import RELATED, offered
from leasehold.store_choice import TablePlaces
from leasehold.stores import open_store
from leasehold.stores.base import CheckpointStore, PipelineBinding, TellsWhetherMade
from leasehold.stores.closing import close_store

TIMEOUT = 10.0
"""Seconds that a part has to answer."""
PROBE_GROUP = "leasehold-check"
"""The consumer group in which it is tried whether a store can be written to."""
DRIVER, TASK = "driver", "task"

_SHOWN = 8  # partitions


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about one part, asked from the driver or from a task; where it is not `ok`, what to do."""

    part: str
    place: str
    ok: bool
    said: str
    remedy: str = ""


Look = Callable[[], Iterable[Finding]]


def asked(part: str, place: str, look: Look, timeout: float) -> list[Finding]:
    """What `look` finds, or that it failed, or that it had no answer within `timeout` seconds."""
    found: list[Finding] = []
    done = threading.Event()

    def run() -> None:
        try:
            for one in look():
                found.append(one)
        except LeaseholdError as error:
            found.append(_failed(part, place, " ".join(str(error).split()), getattr(error, "__notes__", ())))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what was found
            found.append(_failed(part, place, f"{type(error).__name__}: {error}", ()))
        done.set()

    threading.Thread(target=run, name=f"check {part}", daemon=True).start()
    if done.wait(timeout):
        return list(found)
    late = _failed(part, place, f"gave no answer within {timeout:g} s", ())
    return [*found, replace(late, remedy="Start it, correct its URL, or wait longer: --timeout")]


def _failed(part: str, place: str, text: str, notes: Iterable[str]) -> Finding:
    return Finding(part, place, False, text, " ".join(notes) or "See the message")


def look_at_hub(
    url: str,
    place: str,
    *,
    start: Positions | None = None,
    share: Collection[str] | None = None,
    retention: float | None = None,
    timeout: float = TIMEOUT,
) -> Iterator[Finding]:
    """Whether the hub answers, its partitions, where a start would begin, and for how long it keeps events.

    Without `start` only whether it answers. `share` are the partitions of a fixed share, `retention` what the file
    says.
    """
    hub = open_hub(url)
    try:
        known = hub.partition_properties()
        events = sum(max(0, one.end - one.begin) for one in known.values())
        said = f"{counted(len(known), 'partition')} with {counted(events, 'event')}"
        yield Finding("hub", place, bool(known), said, "Add partitions")
        if start is None:
            return
        if unknown := sorted(set(share or ()) - known.keys()):
            said = f"the hub has no partition {', '.join(unknown)}"
            yield Finding("partitions", place, False, said, f"Correct ownership.partitions: {', '.join(known)}")
        concerned = [name for name in known if share is None or name in share]
        wanted = {name: hub.resolve(name, start.of(name)) for name in concerned if _is_place(start, name)}
        gone = [name for name, number in wanted.items() if number < known[name].begin]
        if gone:
            said = f"the hub has removed the events at which partitions {', '.join(gone)} are to start"
            yield Finding("start", place, False, said, "Set source.starting_position = earliest, or a later one")
        elif wanted:
            unread = sum(max(0, known[name].end - number) for name, number in wanted.items())
            yield Finding("start", place, True, f"without checkpoints, a start would read {counted(unread, 'event')}")
        yield from _retention(hub, place, retention, timeout)
    finally:
        hub.close()


def _is_place(start: Positions, partition: str) -> bool:
    """Whether a position is one that the hub knows: `committed` is the stores' to know."""
    return start.of(partition).kind is not PositionKind.COMMITTED


def _retention(hub: Hub, place: str, stated: float | None, timeout: float) -> Iterator[Finding]:
    told = hub.retention(timeout)
    kept = stated if told is None else told
    if stated is not None and told is not None and stated > told:
        said = f"the file says that events are kept for {stated:,.0f} s, and the hub keeps them for {told:,.0f} s"
        yield Finding("retention", place, False, said, "Correct source.retention, or leave it out")
    elif kept is None:
        said = "the hub does not tell: `leasehold status` can warn of it if source.retention says it"
        yield Finding("retention", place, True, said)
    else:
        said = "no event is removed by its age" if math.isinf(kept) else f"events are kept for {kept:,.0f} s"
        yield Finding("retention", place, True, said)


def look_at_receiver(url: str, place: str) -> Iterator[Finding]:
    """Whether the hub answers to which a handler's events go; of a queue, whether its URL can be read."""
    if url.partition("://")[0] in QUEUES:
        open_queue(url).close()
        yield Finding("outbox", place, True, f"events go to {masked(url)}, which is not asked")
        return
    hub = open_hub(url)
    try:
        yield Finding("outbox", place, True, f"{counted(len(hub.partition_ids()), 'partition')} to send to")
    finally:
        hub.close()


def look_at_related(sink: Sink, tables: Collection[str], place: str) -> Iterator[Finding]:
    """Whether the tables are there to which a handler writes, what names their rows, and what this user may do.

    Which rows and columns the handler gives is not known before it is called.
    """
    if (relates := offered(sink, RELATED)) is None:
        if tables:
            yield Finding("related", place, True, f"{', '.join(tables)}: this sink does not show them")
        return
    for name in tables:
        try:
            it = relates.related_table(name)
        except (UsageError, SinkError) as error:
            if error.verdict is Verdict.PASSES:
                raise
            yield _failed("related", place, f"{name}: {' '.join(str(error).split())}", getattr(error, "__notes__", ()))
            continue
        said = f"{name} has the columns {', '.join(it.columns)}"
        if set(it.missing) - {"DELETE"}:
            missing = ", ".join(it.missing)
            yield Finding("related", place, False, f"{name}: this user has no {missing} on it", f"GRANT {missing}")
        elif not it.keys:
            remedy = "CREATE UNIQUE INDEX on the keys of its rows; a handler that only deletes (Gone) needs none"
            yield Finding("related", place, False, f"{said}, and no unique index, which a Row needs", remedy)
        else:
            keys = " or ".join(f"({', '.join(key)})" for key in it.keys)
            limits = "; this user may not delete from it, which Gone needs" if it.missing else ""
            yield Finding("related", place, True, f"{said}; keys=[…] of a Row may be {keys}{limits}")


def look_at_rights(url: str, use: Use, file: str, *, timeout: float = TIMEOUT) -> Iterator[Finding]:
    """Whether this user has all the rights of the one list (`operations.rights`) that a run needs at a URL."""
    answer = asked_for(url, use, timeout=timeout)
    if answer.is_ready:
        yield Finding("rights", DRIVER, True, f"{masked(url)}: {summary_of(answer)}")
    for said, remedy in said_of(answer, file):
        yield Finding("rights", DRIVER, False, f"{masked(url)}: {said}", remedy)
    for said in notes_of(answer):
        yield Finding("rights", DRIVER, True, said)


def look_at_store(part: str, url: str, place: str, hub_url: str, group: str, *, timeout: float) -> Iterator[Finding]:
    """Whether a store answers, has what it keeps records in, and lets this user read and write. `timeout` of a call."""
    store = open_store(url, timeout=timeout)
    try:
        if isinstance(store, TellsWhetherMade) and not store.is_made():
            said = f"nothing is at {masked(url)} yet: the first start makes it"
            yield Finding(part, place, True, f"{said}, or a user who may calls `leasehold init` before")
            return
        hub = open_hub(hub_url)
        try:
            records = hub.consumer_group(group)
            probe = hub.consumer_group(PROBE_GROUP)
            known = hub.partition_ids()
        finally:
            hub.close()
        if part == "checkpoint store":
            count = sum(one.partition in known for one in store.list_checkpoints(records))
            yield Finding(part, place, True, f"it answers; {counted(count, 'checkpoint')} of consumer group {group}")
        else:
            listing = store.list_ownership(records)
            owned = sum(bool(one.owner_id) and one.partition in known for one in listing.records)
            yield Finding(part, place, True, f"it answers; partitions with an owner: {owned} of {len(known)}")
            for one in listing.unreadable:
                if one.kind is RecordKind.OWNERSHIP and one.name in known:
                    said = f"the ownership record of partition {one.name} cannot be read ({excerpt(one.reason)})"
                    yield Finding(part, place, True, f"{said}: {MEANS[one.kind]}")
        if store.features.presence:
            me = str(OwnerId("check"))
            store.renew_ownership([], Presence(probe, me))
            store.withdraw_presence(probe, [me])
            yield Finding(part, place, True, "this user may write to it")
    finally:
        close_store(store)


@dataclass(frozen=True, slots=True)
class Reads:
    """Which partitions a start reads (`share`, None for all), and whether lost events end it."""

    share: Collection[str] | None = None
    fail_on_data_loss: bool = True


def _lost(
    following: Mapping[str, int], hub_partitions: Mapping[str, PartitionProperties], reads: Reads
) -> Iterator[Finding]:
    """The events that come next (`following`, by partition) and are gone from the hub."""
    for partition, properties in hub_partitions.items():
        place = following.get(partition, properties.begin)
        if place < properties.begin and (reads.share is None or partition in reads.share):
            said = f"partition {partition}: events [{place}, {properties.begin}) are gone from the hub"
            if reads.fail_on_data_loss:
                remedy = "They cannot be read any more. To go on without them: --set source.fail_on_data_loss=false"
                yield Finding("unread events", DRIVER, False, f"{said}; a start would end with DataLoss", remedy)
            else:
                yield Finding("unread events", DRIVER, True, f"{said}; a start goes on without them")


def _places(following: Mapping[str, int], hub_partitions: Mapping[str, PartitionProperties], reads: Reads) -> str:
    """Where a start goes on, by checkpoints and table."""
    mine = {name: it for name, it in hub_partitions.items() if reads.share is None or name in reads.share}
    begins = {name: max(following[name], it.begin) for name, it in mine.items() if name in following}
    unread = sum(max(0, mine[name].end - begin) for name, begin in begins.items())
    shown = ", ".join(f"{name} at {begin:,}" for name, begin in [*begins.items()][:_SHOWN])
    more = f" and {len(begins) - _SHOWN} more" if len(begins) > _SHOWN else ""
    return f"a start goes on with partition {shown}{more}: {unread:,} events are unread there"


def look_at_table(
    sink: Sink, checkpoints: CheckpointStore | None, hub_url: str, group: str, file: str, *, reads: Reads
) -> Look:
    """Whether the table's database lets this user write, the stores know what it knows, the hub has what is next.

    And whether the consumer group is this pipeline's.
    """

    def look() -> Iterator[Finding]:
        compared = sink.compare(None)
        there = compared is None or compared.there
        if compared is not None:
            yield Finding("table", DRIVER, True, "its database can be written to")
        if not there:
            yield Finding("table", DRIVER, True, f"{sink.spec.called} is not there yet: the first start makes it")
        if checkpoints is None and (compared is None or not there):
            return
        hub = open_hub(hub_url)
        try:
            identity, records, known = hub.identity, hub.consumer_group(group), hub.partition_properties()
        finally:
            hub.close()
        marks = sink.watermarks(identity) if there else {}
        if checkpoints is not None and (bound := checkpoints.pipeline_binding(records)) is not None:
            check_reset(bound, file)
            whose = sink.recorded_identity() or ""
            mine = PipelineBinding(sink.spec.pipeline, whose)
            try:
                check_binding(records, bound, mine, checkpoints, lambda: marks, file)
            except AlreadyInUse as error:
                yield _failed("consumer group", DRIVER, str(error), ())
        if not there:
            return
        yield from (Finding("table", DRIVER, True, said) for said in sink.advice())
        if checkpoints is not None:
            check_levels(records, checkpoints, lambda: marks, file)
        reached = [*TablePlaces(sink, identity).list_checkpoints(records)]
        reached += [] if checkpoints is None else checkpoints.list_checkpoints(records)
        following: dict[str, int] = {}
        for one in reached:
            following[one.partition] = max(one.next_sequence_number, following.get(one.partition, 0))
        yield from _lost(following, known, reads)
        count = sink.row_count()
        if following:
            yield Finding("start", DRIVER, True, _places(following, known, reads))
        elif count:
            table = sink.spec.called
            said = f"{table} has rows, and nothing says which events are in them: a start applies all of the hub"
            remedy = "to go on where a former reader stopped, `leasehold checkpoints import` first"
            yield Finding("start", DRIVER, True, f"{said}; {remedy}")
        rows = f"{counted(count, 'row')}, of {counted(len(marks), 'partition')}"
        yield Finding("table", DRIVER, True, rows if checkpoints is None else f"{rows}; the checkpoints agree with it")

    return look
