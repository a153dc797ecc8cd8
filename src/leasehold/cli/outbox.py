"""`leasehold outbox`: the emitted events that their hub has refused are listed, sent again or dropped.

Owns what is shown; `operations.refused` has the rules. `leasehold outbox PIPELINE.toml` is `outbox list`.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leasehold.cli.options.selection import (
    ListedByDefault,
    all_of,
    check_named,
    file_and_settings,
    limit,
    open_rows,
    shown_body,
    summed_up,
)
from leasehold.cli.output import Column, Output, Result, ResultTable, short, utc
from leasehold.printable import counted

if TYPE_CHECKING:
    from leasehold.pipeline_file import PipelineFile
    from leasehold.sinks.beside.outbox.contract import Outbox, RefusedEvent

F = TypeVar("F", bound=Any)

ROWS = (
    Column("number", "Number", right=True, text=str),
    Column("id", "Id", text=short),
    Column("key", "Key", text=short),
    Column("emittedAt", "Emitted at"),
    Column("reason", "Refused since", text=short),
    Column("hub", "Hub", hidden=True),
    Column("partition", "Partition", hidden=True),
    Column("properties", "Properties", hidden=True),
    Column("body", "Body", hidden=True),
    Column("bodyEncoding", "Encoding", hidden=True),
)


def _chosen(command: F) -> F:
    """The options that choose events; the command gets them as `numbers` and `reason_has`."""
    reason = click.option("--reason-has", metavar="TEXT", help="Those with this text in their reason.")
    number = click.option("--number", "numbers", type=int, multiple=True, help="This one. May be given more than once.")
    return number(reason(command))


_everything = all_of("refused events")


@click.group(
    cls=ListedByDefault, short_help="List the emitted events that their hub refuses, send them again, or drop them."
)
def outbox() -> None:
    """List the emitted events that their hub refuses, send them again, or drop them.

    They were emitted by a handler, and their hub, or queue, refuses them for good, for example for their size. The file
    names the table that the handler fills, as `name`, `[source] hub` and `[sink]`. Instances may be running.

    \b
    Example:
      leasehold outbox orders.toml
      leasehold outbox retry orders.toml --reason-has "too large"
      leasehold outbox drop orders.toml --number 1042
    """


@outbox.command("list")
@_chosen
@limit("How many events.")
@file_and_settings
def list_(
    file: Path, numbers: tuple[int, ...], reason_has: str | None, limit: int, settings: tuple[str, ...], output: Output
) -> None:
    """List refused events, the oldest first. What this shows first, `list`, may be left out.

    With --json they are shown whole, with body and properties.
    """
    from leasehold.operations.refused import each

    pipeline, refused = _opened(file, settings)
    listed = [_record(one) for one in islice(each(refused, numbers, reason_has), limit)]
    table = ResultTable("refused", ROWS, [[record[column.key] for column in ROWS] for record in listed])
    none = "no such event is refused" if numbers or reason_has else "nothing in the outbox is refused"
    summary = summed_up(len(listed), "refused event", pipeline.name, limit, none)
    output.show(Result(summary, {"pipeline": pipeline.name}, table))


@outbox.command()
@_chosen
@_everything
@file_and_settings
def retry(
    file: Path,
    numbers: tuple[int, ...],
    reason_has: str | None,
    everything: bool,
    settings: tuple[str, ...],
    output: Output,
) -> None:
    """Have refused events sent again, under the ids that they had.

    The owner of their partition sends them before what waits there, within 10 seconds if events come in it, and else
    within a minute. What was sent of their key meanwhile has come before them.
    """
    from leasehold.operations.refused import changed, each

    _check_chosen(numbers, reason_has, everything)
    _, refused = _opened(file, settings)
    count = changed(refused.send_again, each(refused, numbers, reason_has))
    output.show(Result(summary=f"{counted(count, 'refused event')} to be sent again", facts={"retried": count}))


@outbox.command()
@_chosen
@_everything
@file_and_settings
def drop(
    file: Path,
    numbers: tuple[int, ...],
    reason_has: str | None,
    everything: bool,
    settings: tuple[str, ...],
    output: Output,
) -> None:
    """Drop refused events for good. Nothing is kept of them: `outbox list --json` prints them whole."""
    from leasehold.operations.refused import changed, each

    _check_chosen(numbers, reason_has, everything)
    _, refused = _opened(file, settings)
    count = changed(refused.drop_refused, each(refused, numbers, reason_has))
    output.show(Result(summary=f"{counted(count, 'refused event')} dropped", facts={"dropped": count}))


def _check_chosen(numbers: tuple[int, ...], reason_has: str | None, everything: bool) -> None:
    check_named(bool(numbers or reason_has), everything, "events", "--number", "--reason-has")


def _opened(file: Path, settings: tuple[str, ...]) -> tuple[PipelineFile, Outbox]:
    from leasehold.operations.refused import refused_of

    return open_rows(file, settings, refused_of)


def _record(row: RefusedEvent) -> dict[str, object]:
    """An event as JSON has it."""
    body, encoding = shown_body(row.event.body)
    return {
        "number": row.event.number,
        "id": row.event.id,
        "key": row.event.key,
        "emittedAt": utc(row.emitted_at),
        "reason": row.reason,
        "hub": row.hub,
        "partition": row.partition,
        "properties": dict(row.event.properties),
        "body": body,
        "bodyEncoding": encoding,
    }
