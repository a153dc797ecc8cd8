"""`leasehold parked`: the events that wait for their handler are listed, shown, exported, tried at once or dropped.

Owns what is shown; `operations.parked` has the rules. `leasehold parked PIPELINE.toml` is `parked list`.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import click

from leasehold.cli.options.selection import (
    Asked,
    ListedByDefault,
    all_of,
    asks,
    because,
    limit,
    shown_body,
    summed_up,
)
from leasehold.cli.output import Column, Output, Result, ResultTable, short, utc
from leasehold.printable import counted, excerpt, printable

if TYPE_CHECKING:
    from leasehold.operations.left_parked import LeftParked
    from leasehold.pipeline_file import PipelineFile
    from leasehold.sinks.beside.parking.contract import KeepsParked, ParkedRow
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
@asks(limit("How many events."))
def list_(request: Asked, limit: int, output: Output) -> None:
    """List parked events, in the order of their partitions. What this shows first, `list`, may be left out.

    The reason is what the handler raised last. An event without a next try waits behind an earlier one of its entity.
    Of parked messages of queues it says how many there are: their processors try them.
    """
    from leasehold.operations.parked import parked_of
    from leasehold.sinks.features import MESSAGES, offered

    pipeline, sink, chosen = request.opened(lambda sink: sink)
    rows, keeps = parked_of(sink), offered(sink, MESSAGES)
    queues = {} if keeps is None else keeps.parked_messages.waiting()
    listed = [_record(row) for row in rows.parked_rows(chosen, limit)]
    table = ResultTable("parked", ROWS, [[record[column.key] for column in ROWS] for record in listed])
    none = "no such event is parked" if request.some else "nothing is parked"
    summary = summed_up(len(listed), "parked event", pipeline.name, limit, none)
    for queue, (count, oldest) in queues.items():
        summary += f"\n{counted(count, 'message')} of the queue {excerpt(queue)}, the oldest since {utc(oldest)}"
    waiting = [{"queue": queue, "messages": of[0], "oldest": utc(of[1])} for queue, of in queues.items()]
    output.show(Result(summary, {"pipeline": pipeline.name, "queues": waiting}, table))


@parked.command()
@asks()
def show(request: Asked, output: Output) -> None:
    """Show parked events whole: error and body. At most 100."""
    _, rows, chosen = _opened(request)
    for row in rows.parked_rows(chosen, 100):
        record, tries = _record(row), counted(row.event.deliveries, "time")
        said = [
            f"partition {printable(row.id.partition)}, event {row.id.sequence_number}, of {json.dumps(record['key'])}",
            f"parked at {record['parkedAt']}, tried {tries}: {printable(row.event.error)}",
            f"body: {printable(str(record['body']))}",
        ]
        output.show(Result(summary="\n".join(said) + "\n", facts=record))


@parked.command()
@asks()
def export(request: Asked, output: Output) -> None:
    """Print all parked events whole, a JSON object a line, as `list --json` has them. They stay parked.

    \b
    Example:
      leasehold parked export orders.toml > parked.jsonl
    """
    from leasehold.operations.parked import each

    _, rows, chosen = _opened(request)
    for row in each(rows, chosen):
        click.echo(json.dumps(_record(row)))


@parked.command()
@asks(all_of("parked events"))
def retry(request: Asked, output: Output) -> None:
    """Let the owners try parked events at once, in place of after their pause.

    They notice it within 10 seconds. An event behind another one of its entity is tried once that one is done. Events
    of a hub that the file does not name any more, or that was made anew, have no owner: this command calls the handler
    for them, and says what became of them. If the file names no handler, or gives it what a transform makes of events,
    which takes Spark, instances try them within two minutes.
    """
    from leasehold.handlers.of_file import is_transformed
    from leasehold.operations.left_parked import left_of
    from leasehold.operations.parked import retry as retry_all

    request.check()
    pipeline, rows, chosen = _opened(request)
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
        why = [f"the handler raised {'; '.join(map(excerpt, tried.errors))}"] if tried.errors else []
        why += map(excerpt, tried.refused)
        summary += f", since {'; '.join(why)}" if why else ""
        facts |= {"triedHere": tried.tried, "stillParked": tried.still_parked}
        facts |= {"errors": list(tried.errors), "refused": list(tried.refused)}
    output.show(Result(summary=summary, facts=facts))


@parked.command()
@asks(
    all_of("parked events"),
    because("Why: it is kept with the note of what was dropped."),
)
def drop(request: Asked, because: str, output: Output) -> None:
    """Drop parked events for good; their entities go on as if they had never been.

    Which they were, when and why is noted, without their bodies: see `leasehold rejected dropped`.
    """
    from leasehold.operations.parked import drop as drop_all

    request.check()
    _, rows, chosen = _opened(request)
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


def _try_left(pipeline: PipelineFile, rows: KeepsParked, chosen: Selection, events: list[EventId]) -> LeftParked:
    from leasehold.handlers import handled_table
    from leasehold.operations.left_parked import try_left

    table = handled_table(pipeline)
    try:
        return try_left(table, rows, chosen, events)
    finally:
        table.close()


def _opened(request: Asked) -> tuple[PipelineFile, KeepsParked, Selection]:
    from leasehold.operations.parked import parked_of

    return request.opened(parked_of)


def _record(row: ParkedRow) -> dict[str, object]:
    """An event as JSON has it."""
    event = row.event
    body, encoding = shown_body(event.body)
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
