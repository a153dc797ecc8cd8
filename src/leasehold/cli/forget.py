"""`leasehold forget`: what is kept of an entity beside its row is removed."""

from __future__ import annotations

from pathlib import Path

import click

from leasehold.cli.options.settings import set_option
from leasehold.cli.output import Output, Result, output_option
from leasehold.printable import counted, printable


@click.command(short_help="Remove what is kept of an entity beside the table; its row stays.")
@click.argument("file", metavar="PIPELINE.toml", type=click.Path(path_type=Path))
@click.option(
    "--key",
    "stated",
    metavar="[NAME=]VALUE",
    multiple=True,
    required=True,
    help="The entity, by the value of its key column; by name, and once for each, where there are several.",
)
@click.option("--table", metavar="NAME", help="Of this table, where the pipeline fills several.")
@set_option
@output_option
def forget(file: Path, stated: tuple[str, ...], table: str | None, settings: tuple[str, ...], output: Output) -> None:
    """Remove what is kept of an entity beside the table; its row stays.

    That is what the table remembers of its key, also after it was deleted, its parked events, which count as rejected
    rows, and the rejected rows in which the key can be read. Delete the row itself first, by an event or in the
    database: as long as events of the entity come, it is written and remembered again. Without its memory the key is
    like a new one, and a late older event counts. Bodies in which the key cannot be read stay: `leasehold rejected
    show` shows them.

    \b
    Example:
      leasehold forget flights.toml --key "2013-01-01 UA 1545 EWR"
      leasehold forget seats.toml --key flight=UA7 --key seat=12F
    """
    from leasehold.operations.aside.opening import check_there
    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.pipeline_values import parse_settings
    from leasehold.sinks import open_sink
    from leasehold.sinks.beside.forgetting import parse_key
    from leasehold.sinks.features import BOOKKEEPING, require

    pipeline = read_pipeline_file(file, settings=parse_settings(settings)).table(table)
    spec = pipeline.table_spec()
    key = parse_key(spec, stated)
    sink = open_sink(pipeline.sink_url, spec)
    check_there(sink)
    done = require(sink, BOOKKEEPING, "leasehold forget").forget_entity(key)
    named = printable(", ".join(f"{name} = {value!r}" for name, value in key.items()))
    summary = f"{counted(done.memories, 'key')} and {counted(done.rejected, 'rejected row')} forgotten, of {named}"
    output.show(Result(summary, {"pipeline": pipeline.name, "memories": done.memories, "rejected": done.rejected}))
