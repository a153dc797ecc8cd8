"""`leasehold rejected`: the events that were set aside are listed, shown, tried again or dropped.

Owns what is shown; `operations.rejected` has the rules. `leasehold rejected PIPELINE.toml` is `rejected list`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasehold.cli.options.selection import (
    Asked,
    ListedByDefault,
    all_of,
    asks,
    because,
    file_and_settings,
    limit,
    shown_body,
)
from leasehold.cli.output import Column, Output, Result, ResultTable, short, utc
from leasehold.errors import MissingDependency
from leasehold.printable import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.operations.rejected import LostEvent
    from leasehold.pipeline_file import PipelineFile
    from leasehold.sinks.base import Sink
    from leasehold.sinks.beside.set_aside.contract import RejectedRow, RejectedRows, Selection

REASONS = (
    Column("reason", "Reason"),
    Column("rows", "Rows", right=True),
    Column("first", "First"),
    Column("last", "Last"),
)


ROWS = (
    Column("hub", "Hub", hidden=True),
    Column("partition", "Partition"),
    Column("sequenceNumber", "Event", right=True, text=str),
    Column("place", "Row", right=True, text=str),
    Column("rejectedAt", "Rejected at"),
    Column("reason", "Reason", text=short),
    Column("body", "Body", text=short),
    Column("bodyEncoding", "Encoding", hidden=True),
    Column("source", "Source", hidden=True),
)
DROPPED = (
    *ROWS[:4],
    Column("reason", "Was rejected", text=short),
    Column("droppedFor", "Was dropped", text=short),
    Column("droppedAt", "Dropped at"),
)
SKIPS = (
    *ROWS[:3],
    Column("because", "To be skipped", text=short),
    Column("notedBy", "Said by"),
    Column("notedAt", "At"),
    *ROWS[6:8],
)
LOST = (
    *ROWS[:3],
    Column("reason", "Cannot be tried again"),
)


@click.group(cls=ListedByDefault, short_help="List the rejected events of a pipeline, try them again, or drop them.")
def rejected() -> None:
    """List the rejected events of a pipeline, try them again, or drop them.

    \b
    Example:
      leasehold rejected flights.toml
      leasehold rejected show flights.toml --event 3:1042
      leasehold rejected retry flights.toml --reason-has "the field delay"
      leasehold rejected drop flights.toml --event 3:1042 --because "a test message"
    """


@rejected.command("list")
@asks(limit("How many rows and reasons."))
def list_(request: Asked, limit: int, output: Output) -> None:
    """Count the rejected rows by reason, and list them. What this shows first, `list`, may be left out.

    Behind them stand the events that a person has noted to be skipped (`leasehold skip`) and that no batch has come to
    yet, whatever the choice of rows.

    Row counts the rows that the transform has made of an event, from 0. A body is cut here, and whole in `show` and in
    JSON; one that is not UTF-8 text is in base64 there, and `bodyEncoding` says so.
    """
    from leasehold.operations.rejected import rejected_rows_of

    pipeline, sink, chosen = request.opened(lambda sink: sink)
    rows = rejected_rows_of(sink)
    skips = _skips(sink)
    reasons = rows.reasons(chosen, limit)
    listed = rows.rows(chosen, limit)
    counts = ResultTable("reasons", REASONS, [[one.reason, one.rows, one.first, one.last] for one in reasons])
    records = [_record(row) for row in listed]
    table = ResultTable("rejected", ROWS, [[record[column.key] for column in ROWS] for record in records])
    if not listed:
        summary = "no such event is rejected" if request.some else "nothing is rejected"
        summary += _said_of(skips)
        output.show(Result(summary, {"pipeline": pipeline.name}, None, (counts, table, skips)))
        return
    all_reasons = len(reasons) < limit
    summary = f"{counted(sum(one.rows for one in reasons), 'rejected row')} of {pipeline.name}"
    summary += "" if all_reasons else f", of the {limit} most frequent reasons"
    summary += f"; the first {limit} are listed" if len(listed) == limit else ""
    summary += _said_of(skips)
    output.show(Result(summary, {"pipeline": pipeline.name}, counts, (table, skips)))


def _skips(sink: Sink) -> ResultTable:
    """The events that are noted to be skipped."""
    from leasehold.sinks.features import SKIPPING, offered

    found = offered(sink, SKIPPING)
    notes = [] if found is None else found.skip_notes()
    said = [[*note.event, note.because, note.noted_by, utc(note.noted_at), *shown_body(note.body)] for note in notes]
    return ResultTable("toSkip", SKIPS, said)


def _said_of(skips: ResultTable) -> str:
    return f"; {counted(len(skips.rows), 'event')} to be skipped" if skips.rows else ""


@rejected.command()
@asks()
def show(request: Asked, output: Output) -> None:
    """Show rejected rows whole: reason, body, and what else the event had. At most 100."""
    _, rows, chosen = _opened(request)
    for row in rows.rows(chosen, 100):
        record = _record(row)
        said = [f"partition {_line(row.event.partition)}, event {row.event.sequence_number}, row {row.place}"]
        said += [f"rejected at {_line(row.rejected_at)}: {_line(row.reason)}", f"body: {_line(str(record['body']))}"]
        said += [f"with: {_line(row.source)}"] if row.source not in (None, "{}") else []
        output.show(Result(summary="\n".join(said) + "\n", facts=record))


@rejected.command()
@asks(all_of("rejected events"))
def retry(request: Asked, output: Output) -> None:
    """Send rejected events through the transform of the file as it is now, into the table.

    What they become changes in one transaction with the rejected rows. A later event of the same key, once applied, is
    never replaced; a table with mode append gets the rows added. What is rejected again stays, with its new reason.
    Instances may be running. Needs Spark, as `leasehold run` does.

    Where a handler fills the table, the events are parked again, as if they had never been tried: the owners of their
    partitions call the handler within 10 seconds, behind what is parked of the entity before. That needs no Spark.
    """
    from leasehold.operations.rejected import rejected_rows_of
    from leasehold.operations.rejected import retry as retry_all

    request.check()
    pipeline, sink, chosen = request.opened(lambda sink: sink)
    if pipeline.sink.handler is not None:
        output.show(_parked_again(pipeline, rejected_rows_of(sink), chosen))
        return
    try:
        from leasehold.spark.retrying import Retransform
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("pyspark", "pyarrow", "py4j"):
            raise MissingDependency("leasehold rejected retry", "spark") from error
        raise
    with Retransform(pipeline) as transform:
        done = retry_all(sink, chosen, transform, lambda seen: output.note(f"{counted(seen, 'rejected row')} tried"))
    result = done.result
    facts = {
        "applied": result.applied,
        "superseded": result.superseded,
        "rejected": result.rejected,
        "filtered": result.filtered,
        "unread": result.unread,
        "gone": result.gone,
        "duplicates": result.duplicates,
    }
    words = {
        "superseded": "older than what was there",
        "filtered": "filtered by the transform",
        "unread": "going to be read again anyway",
        "gone": "no longer rejected",
        "duplicates": "sent twice by their producers",
    }
    said = [f"{counted(result.applied, 'row')} applied", f"{result.rejected:,} rejected still"]
    said += [f"{facts[name]:,} {word}" for name, word in words.items() if facts[name]]
    said += [f"{counted(len(done.lost), 'event')} that cannot be tried again"] if done.lost else []
    output.show(Result(", ".join(said), facts, None, (_lost(done.lost),)))


def _parked_again(pipeline: PipelineFile, rows: RejectedRows, chosen: Selection) -> Result:
    from leasehold.operations.parking_again import Replays

    done = Replays(pipeline).park_all(rows, chosen)
    result = done.result
    said = [f"{counted(result.parked, 'event')} to be tried by the owners of their partitions"]
    said += [f"{result.unread:,} going to be read again anyway"] if result.unread else []
    said += [f"{result.gone:,} no longer rejected"] if result.gone else []
    said += [f"{counted(len(done.lost), 'event')} that cannot be tried again"] if done.lost else []
    facts = {"parked": result.parked, "unread": result.unread, "gone": result.gone}
    return Result(", ".join(said), facts, None, (_lost(done.lost),))


def _lost(lost: Sequence[LostEvent]) -> ResultTable:
    rows = [[one.event.hub, one.event.partition, one.event.sequence_number, one.reason] for one in lost]
    return ResultTable("lost", LOST, rows)


@rejected.command()
@asks(
    all_of("rejected events"),
    because("Why they are not wanted. It is noted with each."),
)
def drop(request: Asked, because: str, output: Output) -> None:
    """Drop rejected rows for good. Which they were, when and why is noted, without their bodies: see `dropped`."""
    from leasehold.operations.rejected import drop as drop_all

    request.check()
    _, rows, chosen = _opened(request)
    count = drop_all(rows, chosen, because)
    output.show(Result(summary=f"{counted(count, 'rejected row')} dropped", facts={"dropped": count}))


@rejected.command()
@limit("How many rows.")
@file_and_settings
def dropped(file: Path, limit: int, settings: tuple[str, ...], output: Output) -> None:
    """List the rejected rows that were dropped, the latest first, and why."""
    _, rows, _ = _opened(Asked(file, settings))
    found = [
        [
            *(one.event.hub, one.event.partition, one.event.sequence_number, one.place),
            *(one.reason, one.dropped_for, one.dropped_at),
        ]
        for one in rows.dropped(limit)
    ]
    summary = f"the last {counted(len(found), 'row')} that were dropped" if found else "nothing was dropped"
    output.show(Result(summary, {}, None, (ResultTable("dropped", DROPPED, found),)))


def _opened(request: Asked) -> tuple[PipelineFile, RejectedRows, Selection]:
    from leasehold.operations.rejected import rejected_rows_of

    return request.opened(rejected_rows_of)


def _line(text: str | None) -> str:
    """The text on one line of the page, whatever it holds."""
    from leasehold.printable import printable

    return printable(text or "")


def _record(row: RejectedRow) -> dict[str, object]:
    """A row as JSON has it."""
    body, encoding = shown_body(row.body)
    return {
        "hub": row.event.hub,
        "partition": row.event.partition,
        "sequenceNumber": row.event.sequence_number,
        "place": row.place,
        "rejectedAt": row.rejected_at,
        "reason": row.reason,
        "body": body,
        "bodyEncoding": encoding,
        "source": row.source,
    }
