"""`leasehold parked`: the events that wait for their handler are listed, shown, exported, tried at once or dropped.

Owns what is shown; `operations.parked` has the rules. `leasehold parked PIPELINE.toml` is `parked list`.
"""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasehold.cli.options.selection import ListedByDefault, check_chosen, file_and_settings, selection
from leasehold.cli.output import Column, Output, Result, Table, counted, short, utc
from leasehold.printable import printable

if TYPE_CHECKING:
    from leasehold.operations.left_parked import LeftParked
    from leasehold.pipeline_file import PipelineFile
    from leasehold.sinks.beside.parking.listing import ListsParked, ParkedRow
    from leasehold.sinks.beside.set_aside.contract import EventId, Selection

logger = logging.getLogger(__name__)


ROWS = (
    Column("hub", "Hub", hidden=True),
    Column("partition", "Partition"),
    Column("sequenceNumber", "Event", right=True, text=str),
    Column("key", "Entity", text=lambda key: short(", ".join(map(str, key)))),
    Column("tries", "Tries", right=True),
    Column("next", "Next try"),
    Column("parkedAt", "Parked at"),
    Column("error", "Error", text=short),
    Column("enqueuedTime", "Enqueued", hidden=True),
    Column("body", "Body", hidden=True),
    Column("bodyEncoding", "Encoding", hidden=True),
)


@click.group(cls=ListedByDefault, short_help="List the events that wait for their handler, try them now, or drop them.")
def parked() -> None:
    """List the events that wait for their handler, try them now, or drop them.

    The file names the table that the handler fills, as `name`, `[source] hub` and `[sink]`. Instances may be running.

    \b
    Example:
      leasehold parked orders.toml
      leasehold parked show orders.toml --event 3:1042
      leasehold parked export orders.toml > parked.jsonl
      leasehold parked retry orders.toml --reason-has "ConnectionError"
      leasehold parked drop orders.toml --event 3:1042 --because "a test message"
    """


@parked.command("list")
@selection
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many events.")
@file_and_settings
def list_(
    file: Path,
    events: tuple[str, ...],
    reason_has: str | None,
    hub: str | None,
    limit: int,
    settings: tuple[str, ...],
    output: Output,
) -> None:
    """List parked events, in the order of their partitions. What this shows first, `list`, may be left out.

    The reason is what the handler raised last. An event without a next try waits behind an earlier one of its entity.
    Of parked messages of queues it says how many there are: their processors try them.
    """
    from leasehold.sinks.beside.messages.parking import ParksMessages

    pipeline, rows, chosen = _opened(file, settings, events, reason_has, hub)
    queues = rows.parked_messages.waiting() if isinstance(rows, ParksMessages) else {}
    listed = [_record(row) for row in rows.parked_rows(chosen, limit)]
    table = Table("parked", ROWS, [[record[column.key] for column in ROWS] for record in listed])
    none = "no such event is parked" if events or reason_has or hub else "nothing is parked"
    summary = f"{counted(len(listed), 'parked event')} of {pipeline.name}" if listed else none
    summary += f"; the first {limit} are listed" if len(listed) == limit else ""
    for queue, (count, oldest) in queues.items():
        summary += f"\n{counted(count, 'message')} of the queue {queue}, the oldest since {utc(oldest)}"
    waiting = [{"queue": queue, "messages": of[0], "oldest": utc(of[1])} for queue, of in queues.items()]
    output.show(Result(summary, {"pipeline": pipeline.name, "queues": waiting}, table))


@parked.command()
@selection
@file_and_settings
def show(
    file: Path,
    events: tuple[str, ...],
    reason_has: str | None,
    hub: str | None,
    settings: tuple[str, ...],
    output: Output,
) -> None:
    """Show parked events whole: error and body. At most 100."""
    _, rows, chosen = _opened(file, settings, events, reason_has, hub)
    for row in rows.parked_rows(chosen, 100):
        record, tries = _record(row), counted(row.event.deliveries, "time")
        said = [
            f"partition {row.id.partition}, event {row.id.sequence_number}, of {json.dumps(record['key'])}",
            f"parked at {record['parkedAt']}, tried {tries}: {printable(row.event.error)}",
            f"body: {printable(str(record['body']))}",
        ]
        output.show(Result(summary="\n".join(said) + "\n", facts=record))


@parked.command()
@selection
@file_and_settings
def export(
    file: Path,
    events: tuple[str, ...],
    reason_has: str | None,
    hub: str | None,
    settings: tuple[str, ...],
    output: Output,
) -> None:
    """Print all parked events whole, a JSON object a line, as `list --json` has them. They stay parked.

    \b
    Example:
      leasehold parked export orders.toml > parked.jsonl
    """
    from leasehold.operations.parked import each

    _, rows, chosen = _opened(file, settings, events, reason_has, hub)
    for row in each(rows, chosen):
        click.echo(json.dumps(_record(row)))


@parked.command()
@selection
@click.option("--all", "everything", is_flag=True, help="All parked events.")
@file_and_settings
def retry(
    file: Path,
    events: tuple[str, ...],
    reason_has: str | None,
    hub: str | None,
    everything: bool,
    settings: tuple[str, ...],
    output: Output,
) -> None:
    """Let the owners try parked events at once, in place of after their pause.

    They notice it within 10 seconds. An event behind another one of its entity is tried once that one is done. Events
    of a hub that the file does not name any more, or that was made anew, have no owner: this command calls the handler
    for them, and says what became of them. If the file names no handler, or gives it what a transform makes of events,
    which takes Spark, instances try them within two minutes.
    """
    from leasehold.handlers.of_file import is_transformed
    from leasehold.operations.left_parked import left_of
    from leasehold.operations.parked import retry as retry_all

    check_chosen(events, reason_has, hub, everything)
    pipeline, rows, chosen = _opened(file, settings, events, reason_has, hub)
    identity = _hub_of(pipeline)
    left = [] if identity is None else left_of(rows, chosen, identity)
    count = retry_all(rows, chosen)
    summary = f"{counted(count - len(left), 'parked event')} to be tried at once"
    facts: dict[str, object] = {"retried": count}
    if left and (pipeline.sink.handler is None or is_transformed(pipeline)):
        lacks = "names no handler to try them with"
        if pipeline.sink.handler is not None:
            lacks = "has a transform, which takes Spark"
        summary += (
            f"\n{counted(len(left), 'event')} of a hub that the pipeline does not read any more: the file {lacks}, and "
            "running instances try them within two minutes"
        )
        facts |= {"leftToInstances": len(left)}
    elif left:
        tried = _try_left(pipeline, rows, chosen, left)
        summary += (
            f"\n{counted(tried.tried, 'event')} of a hub that the pipeline does not read any more: tried here, and "
            f"{tried.still_parked} still parked"
        )
        why = [f"the handler raised {'; '.join(map(printable, tried.errors))}"] if tried.errors else []
        why += map(printable, tried.refused)
        summary += f", since {'; '.join(why)}" if why else ""
        facts |= {"triedHere": tried.tried, "stillParked": tried.still_parked}
        facts |= {"errors": list(tried.errors), "refused": list(tried.refused)}
    output.show(Result(summary=summary, facts=facts))


@parked.command()
@selection
@click.option("--all", "everything", is_flag=True, help="All parked events.")
@click.option("--because", metavar="TEXT", required=True, help="Why: it is kept with the note of what was dropped.")
@file_and_settings
def drop(
    file: Path,
    events: tuple[str, ...],
    reason_has: str | None,
    hub: str | None,
    everything: bool,
    because: str,
    settings: tuple[str, ...],
    output: Output,
) -> None:
    """Drop parked events for good; their entities go on as if they had never been.

    Which they were, when and why is noted, without their bodies: see `leasehold rejected dropped`.
    """
    from leasehold.operations.parked import drop as drop_all

    check_chosen(events, reason_has, hub, everything)
    _, rows, chosen = _opened(file, settings, events, reason_has, hub)
    count = drop_all(rows, chosen, because)
    output.show(Result(summary=f"{counted(count, 'parked event')} dropped", facts={"dropped": count}))


def _hub_of(pipeline: PipelineFile) -> str | None:
    """The identity of the hub that the pipeline reads; None, with a warning, if it is away."""
    from leasehold.errors import HubUnavailable
    from leasehold.hubs import open_hub

    try:
        hub = open_hub(pipeline.hub_url)
    except HubUnavailable as error:
        logger.warning("whether events are parked of another hub, which nobody reads, is not known: %s", error)
        return None
    identity = hub.identity
    hub.close()
    return identity


def _try_left(pipeline: PipelineFile, rows: ListsParked, chosen: Selection, left: list[EventId]) -> LeftParked:
    from leasehold.handlers import handled_table
    from leasehold.operations.left_parked import try_left

    table = handled_table(pipeline)
    try:
        return try_left(table, rows, chosen, left)
    finally:
        table.close()


def _opened(
    file: Path, settings: tuple[str, ...], events: tuple[str, ...], reason_has: str | None, hub: str | None
) -> tuple[PipelineFile, ListsParked, Selection]:
    from leasehold.operations.parked import parked_of
    from leasehold.operations.rejected import check_there, parse_event
    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.pipeline_values import parse_settings
    from leasehold.sinks import open_sink
    from leasehold.sinks.beside.set_aside.contract import Selection

    chosen = Selection(frozenset(map(parse_event, events)) if events else None, reason_has, hub)
    pipeline = read_pipeline_file(file, settings=parse_settings(settings))
    sink = open_sink(pipeline.sink_url, pipeline.table_spec())
    check_there(sink)
    return pipeline, parked_of(sink), chosen


def _record(row: ParkedRow) -> dict[str, object]:
    """An event as JSON has it."""
    event, encoding = row.event, "text"
    try:
        body = event.body.decode()
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(event.body).decode(), "base64"
    return {
        "hub": row.id.hub,
        "partition": row.id.partition,
        "sequenceNumber": row.id.sequence_number,
        "key": list(event.key),
        "tries": event.deliveries,
        "next": utc(event.next_at or row.parked_at) if row.first else None,
        "parkedAt": utc(row.parked_at),
        "error": event.error,
        "enqueuedTime": event.enqueued_time,
        "body": body,
        "bodyEncoding": encoding,
    }
