"""`leasehold reset`: sets checkpoints and the table's watermarks together, while nothing is running."""

from __future__ import annotations

from pathlib import Path

import click

from leasehold.backends import masked
from leasehold.cli.options.settings import set_option
from leasehold.cli.options.waiting import patiently, wait_option
from leasehold.cli.output import Column, Output, Result, ResultTable, output_option
from leasehold.errors import ConfigError
from leasehold.model import stated_positions

_COLUMNS = (
    Column("partition", "Partition"),
    Column("before", "Before", right=True),
    Column("after", "After", right=True),
)


@click.command(short_help="Set how far a pipeline has come, while it is not running.")
@click.argument("file", metavar="PIPELINE.toml", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "to",
    metavar="POSITION",
    required=True,
    help="earliest, latest, a sequence number, an ISO 8601 timestamp, a JSON object of these by partition, or sink: "
    "where the table's own watermarks say that it is. Partitions that the object does not name, nor its key *, stay.",
)
@wait_option
@set_option
@output_option
def reset(file: Path, to: str, wait: float, settings: tuple[str, ...], output: Output) -> None:
    """Set how far a pipeline has come, while it is not running.

    Checkpoints and the table's watermarks are set together. In Postgres every right that this takes is asked for before
    anything is moved, and no table is dropped. A reset that was interrupted is told by status and by the next start,
    with the command that completes it: the same one. The rows of the table stay: an upserted table comes out
    right when events are read again; an appended one, and one that a handler fills, would hold them twice, so going
    back is refused until it has been emptied. Refused while an instance is alive.

    Until all has been read again, rows are as older events have left them. What a mended body has changed
    (leasehold aside retry --from) is gone: the hub has the event as it was sent.

    --to sink makes the checkpoints follow the table, after a store was wiped or restored from an older copy.
    --to earliest fills a new table from the beginning, after its database was deleted, and an upserted table anew: what
    is known of its keys is forgotten, so that sequence_by and delete_when may be others from then on. The rows stay,
    and come out as the events say that the hub still has.

    A JSON object sets the partitions that it names, and no other: they stay where they are, and so does what is known
    of the keys. Its key * names all others.

    \b
    Example:
      leasehold reset flights.toml --to sink
      leasehold reset flights.toml --to '{"1": 2000}'
    """
    from leasehold.combinations import is_mixed
    from leasehold.hubs import open_hub
    from leasehold.operations.asking_rights import check_reset_rights
    from leasehold.operations.resetting import reset_group
    from leasehold.operations.rights import uses_of
    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.pipeline_values import parse_settings
    from leasehold.store_choice import TablePlaces
    from leasehold.stores import PipelineBinding, open_store

    pipeline = read_pipeline_file(file, settings=parse_settings(settings))
    positions = None
    if to.strip().lower() != "sink":
        try:
            positions = stated_positions(to, "--to", committed=False)
        except ConfigError as error:
            error.add_note("Or sink, alone: where the table's own watermarks say that it is.")
            raise
    asks = [(url, use) for url, uses in uses_of(pipeline).items() for use in uses]
    patiently(lambda: check_reset_rights(asks, str(file), timeout=pipeline.ownership.settings().request_timeout), wait)
    hub = patiently(lambda: open_hub(pipeline.hub_url), wait, masked(pipeline.hub_url))
    sink = pipeline.open_tables()
    stores = pipeline.open_stores(open_store, lambda: TablePlaces(sink, hub.identity))
    ownership = pipeline.ownership.settings()
    moves = reset_group(
        hub,
        hub.consumer_group(pipeline.source.consumer_group),
        stores,
        sink,
        PipelineBinding(pipeline.name, sink.identity()),
        to=positions,
        stated=to.strip(),
        expiration=ownership.partition_expiration,
        foreign_expiration=ownership.expiration_of_others(mixed=is_mixed(hub.url)),
    )
    table = ResultTable("partitions", _COLUMNS, [(move.partition, move.before, move.after) for move in moves])
    stays = "; partitions that are not named stay where they are" if len(moves) < len(hub.partition_ids()) else ""
    summary = f"{pipeline.name} goes on from there{stays}"
    output.show(Result(summary=summary, facts={"pipeline": pipeline.name}, table=table))
