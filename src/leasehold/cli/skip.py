"""`leasehold skip`: has one event left out that its partition cannot get past, while instances run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasehold.backends import masked
from leasehold.cli.options.selection import because, file_and_settings
from leasehold.cli.options.waiting import patiently, wait_option
from leasehold.cli.output import Output, Result, utc
from leasehold.printable import excerpt, printable

if TYPE_CHECKING:
    from leasehold.sinks.beside.skipping.contract import Noted


@click.command(short_help="Have an event left out that its partition cannot get past.")
@click.option(
    "--event",
    metavar="PARTITION:NUMBER",
    required=True,
    help="The event, by its partition and sequence number, as errors and logs name it.",
)
@because("Why it is not wanted. It is kept with the event.")
@wait_option
@file_and_settings
def skip(file: Path, event: str, because: str, wait: float, settings: tuple[str, ...], output: Output) -> None:
    """Have an event left out that its partition cannot get past, while instances run.

    A note with the event, who has asked for it, when and why is written beside the entity table. The owner of the
    partition leaves the event out, before transform and handler, when it comes to it: in one transaction the
    watermark passes it, the note goes, and the event is set aside. Then `leasehold rejected` lists it, as skipped by
    a person, and can try it again; until then `leasehold status` counts it, and `rejected list` has it. An instance
    that has ended because of the event has to be started again.

    Where the event was applied or set aside already, this says so and changes nothing. A reset that goes back behind a
    skipped event has it read again.

    \b
    Example:
      leasehold skip flights.toml --event 3:1042 --because "an aircraft that moved to another partition"
    """
    from leasehold.hubs import open_hub
    from leasehold.operations.aside.contract import parse_event
    from leasehold.operations.aside.opening import opened_table
    from leasehold.operations.skipping import skip as note
    from leasehold.operations.skipping import who
    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.pipeline_values import parse_settings

    partition, number = parse_event(event)
    pipeline = read_pipeline_file(file, settings=parse_settings(settings))
    tables = [opened_table(one) for one in pipeline.tables]
    hub = patiently(lambda: open_hub(pipeline.hub_url), wait, masked(pipeline.hub_url))
    try:
        each = [
            note(hub, pipeline.source.consumer_group, one, partition, number, because=because, noted_by=who())
            for one in tables
        ]
    finally:
        hub.close()
    noted = next((one for one in each if one.passed is None and one.before is None), each[0])
    facts: dict[str, object] = {
        "pipeline": pipeline.name,
        "partition": partition,
        "sequenceNumber": number,
        "noted": noted.passed is None and noted.before is None,
        "passed": noted.passed is not None,
    }
    output.show(Result(_said(partition, number, noted), facts))


def _said(partition: str, number: int, noted: Noted) -> str:
    event = f"event {number} of partition {excerpt(partition)}"
    if noted.passed is not None:
        return (
            f"nothing was changed: the table has come to event {noted.passed} of partition {excerpt(partition)}, so "
            f"event {number} was applied, rejected or parked already. `leasehold rejected` and `leasehold parked` list "
            "what was set aside"
        )
    if (before := noted.before) is not None:
        return (
            f"nothing was changed: {event} is to be skipped already, as {excerpt(before.noted_by)} said on "
            f"{utc(before.noted_at)}: {printable(before.because)}"
        )
    return f"{event} will be skipped: the owner of the partition leaves it out when it comes to it, and sets it aside"
