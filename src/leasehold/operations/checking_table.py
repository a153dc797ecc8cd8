"""What is looked at of the table before a pipeline's first start: its columns, what is beside it, where a start begins.

Owns these questions, and the one answer to where a start begins: by checkpoints, by the table, and where nothing was
read by the file. Nothing is made or changed. `operations.checking` has what a finding is, and who asks in which time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.errors import AlreadyInUse, SinkError, UsageError, Verdict
from leasehold.handlers.applying import states_of
from leasehold.model import PartitionProperties
from leasehold.operations.checking import DRIVER, Finding, HubSeen, failed
from leasehold.ownership.starting import check_binding, check_levels, check_reset, check_untied
from leasehold.pipeline_file import PipelineFile
from leasehold.printable import counted
from leasehold.sinks.base import Sink
from leasehold.sinks.features import RELATED, offered
from leasehold.sinks.rules.remembered_order import unordered_rows
from leasehold.store_choice import TablePlaces
from leasehold.stores.base import CheckpointStore, PipelineBinding

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 8  # partitions
_LOST = "a start ends with DataLoss on Spark, and without Spark leaves the partition unread"


@dataclass(frozen=True, slots=True)
class Reads:
    """Which partitions a start reads (`share`, None for all), and whether lost events end it."""

    share: Collection[str] | None = None
    fail_on_data_loss: bool = True


def look_at_columns(sink: Sink, columns: pa.Schema, file: PipelineFile) -> Iterator[Finding]:
    """Whether the columns that a start writes fit the table, and the table may keep the states of a handler."""
    if (compared := sink.compare(columns)) is None:
        return
    if file.sink.handler is not None and compared.there:
        states_of(sink).check_states(referred=bool(file.sink.related))
    made = f"the table {sink.spec.called} can be made of these columns"
    fit = f"these columns fit the table {sink.spec.called}"
    yield Finding("table", DRIVER, True, fit if compared.there else made)
    if compared.added:
        yield Finding("table", DRIVER, True, f"the first start adds the columns {', '.join(compared.added)}")
    if compared.uncounted:
        yield Finding("table", DRIVER, True, unordered_rows(sink.spec, compared.uncounted))


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
            yield failed("related", place, f"{name}: {' '.join(str(error).split())}", getattr(error, "__notes__", ()))
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


def look_at_table(
    sink: Sink, checkpoints: CheckpointStore | None, seen: HubSeen, file: str, *, reads: Reads
) -> Iterator[Finding]:
    """Whether the stores know what the table knows, the hub has what comes next, and where a start begins.

    And whether the consumer group is this pipeline's. Raises where a start would.
    """
    compared = sink.compare(None)
    there = compared is None or compared.there
    marks = sink.watermarks(seen.identity) if there else {}
    if checkpoints is not None:
        try:
            check_untied(seen.group, checkpoints, lambda: marks, file)
            if (bound := checkpoints.pipeline_binding(seen.group)) is not None:
                check_reset(bound, file)
                mine = PipelineBinding(sink.spec.pipeline, sink.recorded_identity() or "")
                check_binding(seen.group, bound, mine, checkpoints, lambda: marks, file)
        except AlreadyInUse as error:
            yield failed("consumer group", DRIVER, str(error), ())
            return
    if there and checkpoints is not None:
        check_levels(seen.group, checkpoints, lambda: marks, file)
    reached = [*TablePlaces(sink, seen.identity).list_checkpoints(seen.group)] if there else []
    reached += [] if checkpoints is None else checkpoints.list_checkpoints(seen.group)
    following: dict[str, int] = {}
    for one in reached:
        following[one.partition] = max(one.next_sequence_number, following.get(one.partition, 0))
    count = sink.row_count() if there else 0
    yield from _lost(following, seen.partitions, reads)
    yield from where_it_begins(seen, following, reads.share, sink.spec.called if count else None)
    if there:
        rows = f"{counted(count, 'row')}, of {counted(len(marks), 'partition')}"
        yield Finding("table", DRIVER, True, rows if checkpoints is None else f"{rows}; the checkpoints agree with it")


def look_at_writing(sink: Sink) -> Iterator[Finding]:
    """Whether the table's database lets this user write, and what would make it faster."""
    if (compared := sink.compare(None)) is None:
        return
    yield Finding("table", DRIVER, True, "its database can be written to")
    if not compared.there:
        yield Finding("table", DRIVER, True, f"{sink.spec.called} is not there yet: the first start makes it")
    else:
        yield from (Finding("table", DRIVER, True, said) for said in sink.advice())


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
                yield Finding("unread events", DRIVER, False, f"{said}; {_LOST}", remedy)
            else:
                yield Finding("unread events", DRIVER, True, f"{said}; a start goes on without them")


def where_it_begins(
    seen: HubSeen, following: Mapping[str, int], share: Collection[str] | None, filled: object | None
) -> Iterator[Finding]:
    """Where a start begins in each partition: the one place that says so. Pure.

    `following` is what comes next in the partitions that were read; `filled` names a table that has rows.
    """
    mine = {name: it for name, it in seen.partitions.items() if share is None or name in share}
    fresh = {name: it for name, it in mine.items() if name not in following}
    if gone := [name for name, it in fresh.items() if seen.begins.get(name, it.begin) < it.begin]:
        said = f"the hub has removed the events at which partitions {', '.join(gone)} are to start"
        yield Finding("start", DRIVER, False, said, "Set source.starting_position = earliest, or a later one")
        return
    told = []
    if begins := {name: max(following[name], it.begin) for name, it in mine.items() if name in following}:
        unread = sum(max(0, mine[name].end - begin) for name, begin in begins.items())
        places = _some([f"{name} at {begin:,}" for name, begin in begins.items()])
        told.append(f"a start goes on with partition {places}: {unread:,} events are unread there")
    elif filled is not None:
        told.append(f"{filled} has rows, and nothing says which events are in them")
    if known := [name for name in fresh if name in seen.begins]:
        unread = sum(max(0, fresh[name].end - seen.begins[name]) for name in known)
        whose = f"of partition {_some(known)} nothing was read" if begins else "nothing was read"
        told.append(f"{whose}: a start reads {counted(unread, 'event')}, from source.starting_position on")
    if committed := [name for name in fresh if name not in seen.begins]:
        told.append(f"partition {_some(committed)} begins where the consumer group has committed")
    if filled is not None and not begins:
        told.append("to go on where a former reader stopped, `leasehold checkpoints import` first")
    if told:
        yield Finding("start", DRIVER, True, "; ".join(told))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
