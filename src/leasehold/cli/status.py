"""`leasehold status`: a row per partition of a pipeline's hub."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasehold.backends import masked
from leasehold.cli.options.settings import set_option
from leasehold.cli.options.waiting import patiently, wait_option
from leasehold.cli.output import Column, JsonOutput, Output, Result, ResultTable, output_option, plain
from leasehold.operations.lag_times import GroupTimes, PartitionTimes
from leasehold.operations.progress import GroupProgress, PartitionProgress
from leasehold.ownership.starting import reset_said
from leasehold.printable import counted, excerpt, shortened, span
from leasehold.stores.names import LONGEST_NAME

if TYPE_CHECKING:
    from leasehold.operations.group_watch import WatchedGroup
    from leasehold.sinks.set_aside import SetAsideCounts

TIMEOUT = 5.0
"""How long to wait for what a hub says about times, in seconds."""


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return "before the last restart of this machine" if math.isinf(seconds) else span(seconds)


def _unread(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return span(seconds) if seconds else "-"


def _left(retention: float | None) -> Callable[[float | None], str]:
    """How the time that is left is written, where the hub keeps an event for `retention`."""
    if retention is None:
        return lambda seconds: "unknown"
    if math.isinf(retention):
        return lambda seconds: "never"
    return lambda seconds: "-" if seconds is None else span(seconds)


def _remark(row: PartitionProgress, times: PartitionTimes | None = None) -> str:
    """What there is to say of a partition. What others wrote stands at the end, where a cell may cut it off."""
    remarks = []
    if times is not None and times.held_back:
        age = "" if times.held_for is None else f", the oldest for {span(times.held_for)}"
        remarks.append(f"an open transaction holds back {counted(times.held_back, 'offset')} behind the end{age}")
    if row.checkpoint is not None and row.checkpoint < row.begin:
        remarks.append(f"the hub has removed what was unread from {row.checkpoint} up to {row.begin}")
    if row.checkpoint is not None and row.checkpoint > row.end:
        remarks.append(f"the hub ends at {row.end}, before what was read: it has lost acknowledged events")
    if row.unreadable:
        remarks.append(f"its ownership record cannot be read: {row.unreadable}")
    if row.asked_by:
        remarks.append(f"{shortened(row.asked_by, LONGEST_NAME)} waits for it")
    if row.failures:
        owners = "1 owner" if row.failures == 1 else f"{row.failures} owners in a row"
        taken = ", taken last" if row.suspect else ""
        remarks.append(f"{owners} came to a bad end and no event was done{taken}: {row.last_error}")
    if row.waits:
        remarks.append(f"waits until a person mends this: {row.last_error}")
    return "; ".join(remarks)


COLUMNS = (
    Column("partition", "Partition"),
    Column("owner", "Owner"),
    Column("ownerLevel", "Level", right=True),
    Column("age", "Age", right=True, text=_age),
    Column("checkpoint", "Checkpoint", right=True),
    Column("end", "End", right=True),
    Column("lag", "Lag", right=True),
)
UNREAD = Column("lagSeconds", "Oldest unread", right=True, text=_unread)
REMARK = Column("remark", "Remark", remark=True)


@click.command(short_help="Show who holds which partition, and how far it has come.")
@click.argument("file", metavar="PIPELINE.toml", type=click.Path(path_type=Path))
@click.option(
    "--retention",
    metavar="DURATION",
    help="For how long the hub keeps an event, for example 7d. Without it source.retention of the pipeline file "
    "counts, and without that what the hub says.",
)
@click.option(
    "--watch",
    metavar="[DURATION]",
    is_flag=False,
    flag_value="1s",
    help="Look again and again, each time after this long (1s if not said), until Ctrl-C. Write it behind "
    "PIPELINE.toml, which would be taken for the duration.",
)
@wait_option
@set_option
@output_option
def status(
    file: Path, retention: str | None, watch: str | None, wait: float, settings: tuple[str, ...], output: Output
) -> None:
    """Show who holds which partition, and how far it has come.

    Checkpoint is the sequence number that the next owner would start at, End the one that the next event will
    get, and Lag the number of events between them, as far as the hub tells which numbers have one. Oldest unread is
    the age of the first of these (lagSeconds in JSON): the time since it was enqueued, by the clock of the hub or, on
    Kafka, of its producer. Removed in (secondsLeft) is the time until the hub's retention may remove it. What the hub
    does not tell within 5 seconds is unknown. A store that is not there is refused, and not made; a server that is
    away is waited for.

    Age is the time since the owner last renewed its ownership, by the store's clock. A remark tells of a partition
    that is about to be handed over, whose owners come to a bad end one after another, of which the hub has removed
    what was not read, or that has messages of an open transaction behind its end (Kafka). Nothing needs to be running,
    and Spark is not needed either.

    Below the table stands what is set aside beside the entity table: rejected rows, how many of them are dead letters
    of a handler, events that a person has noted to be skipped and no batch has come to yet, and parked events
    (rejected, rejectedOf by table where there are several, deadLetters, toSkip, parked, oldestParked and nextRetry in
    JSON, null where the entity table cannot be asked). A reset that has begun and not ended is told, with the command
    that completes it (reset in JSON).

    --watch shows all that live on a terminal, with lags over time, and moves and take-overs with the reason as they
    happen. Where the output is no terminal, each look is printed after the other.

    \b
    Example:
      leasehold status flights.toml
      leasehold status flights.toml --watch
      leasehold status flights.toml --json | jq .lagSeconds
    """
    from leasehold.cli.status_screen import Looked
    from leasehold.cli.status_screen import watch as watching
    from leasehold.clock import SystemClock
    from leasehold.config import parse_duration
    from leasehold.hubs import open_hub
    from leasehold.operations.group_watch import WatchedCount
    from leasehold.operations.pipeline_group import open_group
    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.pipeline_values import parse_settings

    stated = None if retention is None else parse_duration(retention, "--retention")
    every = None if watch is None else parse_duration(watch, "--watch")
    pipeline = read_pipeline_file(file, settings=parse_settings(settings))
    hub = patiently(lambda: open_hub(pipeline.hub_url), wait, masked(pipeline.hub_url))

    def opened() -> tuple[WatchedGroup, GroupProgress]:
        group = open_group(pipeline, hub=hub)
        return group, group.progress()

    group, progress = patiently(opened, wait)
    group = replace(group, retention=group.retention if stated is None else stated, timeout=TIMEOUT)

    clock = SystemClock()
    aside = WatchedCount(pipeline.name, "what is set aside beside its table", group.set_aside, clock)

    def looked(progress: GroupProgress) -> Looked:
        at, moment = clock.wall(), clock.monotonic()
        times = group.times(progress, at)
        bound = group.checkpoints.pipeline_binding(group.group)
        reset = None if bound is None or bound.reset is None else reset_said(bound.reset, str(file))
        result = describe(pipeline.name, progress, times, aside.latest(), at, reset)
        return Looked(at, moment, progress, result, group.expiration)

    if every is None:
        output.show(looked(progress).result)
    elif output.results.is_terminal and not isinstance(output, JsonOutput):
        watching(output.results, lambda: looked(group.progress()), every, sleep=time.sleep)
    else:
        while True:
            output.show(looked(group.progress()).result)
            time.sleep(every)


def describe(
    name: str,
    progress: GroupProgress,
    times: GroupTimes | None = None,
    counts: SetAsideCounts | None = None,
    at: float = 0.0,
    reset: str | None = None,
) -> Result:
    """The status of a pipeline as a result; without `times` what would take further questions is left out.

    `counts` is what is set aside beside the table, None where nobody can tell; `at` is now, in seconds since 1970.
    `reset` is what to say of a reset that did not end.
    """
    rows, instances = progress.partitions, progress.instances
    known: Sequence[PartitionTimes | None] = [None] * len(rows)
    if times is not None:
        known = times.partitions
        rows = tuple(replace(row, lag=one.unread) for row, one in zip(rows, times.partitions, strict=True))
    remarks = [_remark(row, one) for row, one in zip(rows, known, strict=True)]
    lag = sum(row.lag for row in rows)
    columns = list(COLUMNS)
    values: list[list[object]] = [
        [r.partition, r.holder, r.owner_level, _finite(r.age), r.checkpoint, r.end, r.lag] for r in rows
    ]
    if times is not None:
        columns += [UNREAD, Column("secondsLeft", "Removed in", right=True, text=_left(times.retention))]
        for row, time in zip(values, times.partitions, strict=True):
            row += [_finite(time.lag), _finite(time.left)]
    if any(remarks):
        columns.append(REMARK)
        for row, remark in zip(values, remarks, strict=True):
            row.append(remark)
    summary = f"{name}: {counted(len(rows), 'partition')}, {counted(len(instances), 'instance')}, lag {plain(lag)}"
    summary += _in_time(times) if times and lag else ""
    idle = [one.owner_id for one in instances if not one.partitions]
    if idle:
        summary += f"\nwithout a partition: {', '.join(map(excerpt, idle))}"
    if progress.unserved:
        summary += (
            f"\nno instance takes partitions {', '.join(map(excerpt, progress.unserved))}: each that is there has its "
            "maximum_partitions, or hangs in a handler and takes none until that returns (its log, and the last error "
            "above, say so). Start another instance, raise maximum_partitions, or kill the one that hangs"
        )
    if reset is not None:
        summary += f"\n{reset}"
    if counts is not None:
        summary += _said_of_aside(counts, at)
    return Result(
        summary=summary,
        facts={
            "pipeline": name,
            "instances": [one.owner_id for one in instances],
            "lag": lag,
            **(_facts(times) if times else {}),
            **(_facts_of_aside(counts) if times else {}),
            "unserved": list(progress.unserved),
            **({"reset": reset} if times else {}),
            "suspects": [
                {"partition": r.partition, "failures": r.failures, "lastError": r.last_error} for r in rows if r.suspect
            ],
            "toMend": [{"partition": r.partition, "lastError": r.last_error} for r in rows if r.waits],
        },
        table=ResultTable("partitions", columns, values),
    )


def _facts(times: GroupTimes) -> dict[str, object]:
    return {
        "lagSeconds": times.lag,
        "secondsLeft": _finite(times.left),
        "heldBack": sum(one.held_back for one in times.partitions),
        "retention": {"known": times.retention is not None, "seconds": _finite(times.retention)},
    }


def _facts_of_aside(counts: SetAsideCounts | None) -> dict[str, object]:
    return {
        "rejected": counts and counts.rejected,
        **({"rejectedOf": dict(counts.rejected_of)} if counts and counts.rejected_of else {}),
        "deadLetters": counts and counts.dead_letters,
        "toSkip": counts and counts.to_skip,
        "parked": counts and counts.parked,
        "oldestParked": counts and counts.oldest_parked,
        "nextRetry": counts and counts.next_retry,
        "outbox": counts and counts.outbox.waiting,
        "oldestInOutbox": counts and counts.outbox.since,
        "refusedInOutbox": counts and counts.outbox.refused,
    }


def _said_of_aside(counts: SetAsideCounts, at: float) -> str:
    """What the summary says of rejected rows and parked events, where there are some."""
    said = ""
    if counts.rejected:
        said += f"\n{counted(counts.rejected, 'rejected row')}"
        said += f", {plain(counts.dead_letters)} of dead letters" if counts.dead_letters else ""
        each = [f"{plain(count)} of {name}" for name, count in counts.rejected_of.items() if count]
        said += f": {', '.join(each)}" if each else ""
    if counts.to_skip:
        said += f"\n{counted(counts.to_skip, 'event')} to be skipped: see `leasehold rejected`"
    if counts.parked:
        said += f"\n{counted(counts.parked, 'parked event')}"
        if counts.oldest_parked is not None:
            said += f", the oldest for {span(max(0.0, at - counts.oldest_parked))}"
        if counts.next_retry is not None:
            due = counts.next_retry - at
            said += f", the next is tried in {span(due)}" if due > 0 else ", the next is due"
    if counts.outbox.waiting and counts.outbox.since is not None:
        said += f"\n{counted(counts.outbox.waiting, 'event')} in the outbox"
        said += f", the oldest for {span(max(0.0, at - counts.outbox.since))}"
    if counts.outbox.refused:
        said += f"\n{counted(counts.outbox.refused, 'event')} in the outbox refused by the hub: see `leasehold outbox`"
    return said


def _in_time(times: GroupTimes) -> str:
    """What the summary says of unread events."""
    said = "" if times.lag is None else f", the oldest of these events is {span(times.lag)} old"
    if times.left is not None and math.isfinite(times.left):
        said += f" and may be removed in {span(times.left)}" if times.left else " and may be removed at any moment"
    if any(one.lag is None for one in times.partitions):
        said += "\nthe hub does not tell how old the unread events of every partition are"
    return said


def _finite(seconds: float | None) -> float | None:
    return seconds if seconds is None or math.isfinite(seconds) else None
