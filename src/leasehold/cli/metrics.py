"""`leasehold metrics`: the metrics of pipelines' groups, for Prometheus."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasehold.cli.options.pipeline_files import read_pipelines
from leasehold.cli.options.settings import set_option
from leasehold.cli.output import JsonOutput, Output, Result, output_option
from leasehold.errors import MissingDependency
from leasehold.listening import Address

if TYPE_CHECKING:
    from leasehold.metrics.group_looks import GroupLooks


@click.command(short_help="Serve the metrics of pipelines to Prometheus, from outside of what runs.")
@click.argument("files", metavar="PIPELINE.toml...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9464",
    show_default=True,
    help="Where to serve /metrics and /status; port 0 takes a free one.",
)
@click.option(
    "--window",
    metavar="DURATION",
    default="5m",
    show_default=True,
    help="For how long a partition is watched before it is said to lag or to stall. Longer than any batch takes.",
)
@click.option("--once", is_flag=True, help="Look once, print the metrics, and end: for a textfile collector.")
@set_option
@output_option
def metrics(
    files: tuple[Path, ...], listen: str, window: str, once: bool, settings: tuple[str, ...], output: Output
) -> None:
    """Serve the metrics of pipelines to Prometheus, from outside of what runs.

    They come from the hub, the stores and the table alone: lag in events and in seconds, time until retention, who
    holds what, what the table holds, and a verdict on each partition, all there when no instance is. Each scrape looks
    anew. /status has the same as JSON, with the reason of each verdict. A hub or store that is away makes
    leasehold_group_up 0 and leaves the rest of its pipeline out, until it is back; one that is not there yet, too.

    --once has watched nothing: its verdicts say what the records show at one look, and else unknown. It ends with exit
    code 1 where a pipeline could not be looked at. --once --json prints what /status has, a line for each pipeline.

    \b
    Example:
      leasehold metrics flights.toml orders.toml --listen 127.0.0.1:9464
      leasehold metrics flights.toml --once > flights.prom.new; mv flights.prom.new flights.prom
    """
    from leasehold.config import parse_duration

    address = Address.parse(listen, "--listen")
    seconds = parse_duration(window, "--window")
    pipelines = read_pipelines(files, settings)
    try:
        from leasehold.metrics.exposition import text_of
        from leasehold.metrics.group_families import families
        from leasehold.metrics.group_looks import GroupLooks
        from leasehold.metrics.group_page import document
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "prometheus_client":
            raise MissingDependency("leasehold metrics", "metrics") from error
        raise
    from leasehold.operations.pipeline_group import open_group

    looks = GroupLooks({one.name: partial(open_group, one) for one in pipelines}, window=seconds)
    try:
        if not once:
            _serve(looks, address, output)
        found = looks.look()
        if isinstance(output, JsonOutput):
            for look in found:
                output.show(Result(facts=document(look)))
        else:
            click.echo(text_of(families(found)), nl=False)
        if any(look.snapshot is None for look in found):
            raise click.exceptions.Exit(1)
    finally:
        looks.close()


def _serve(looks: GroupLooks, address: Address, output: Output) -> None:
    """Serve until Ctrl-C.

    What is imported stays, and is set aside from the garbage collector: a look at thousands of partitions makes it
    collect, and going through all modules each time took as long as the look.
    """
    import gc
    import threading

    from leasehold.metrics.group_server import serve_groups

    if not address.is_loopback:
        output.note(
            f"leasehold: warning: {address} may be reached from other machines. Whoever reaches it sees the names of "
            "pipelines, hubs and owners, and their errors: nothing is encrypted, and nobody is asked who they are"
        )
    with serve_groups(looks, address, field="--listen") as server:
        output.show(
            Result(summary=f"serving {server.url}/metrics until Ctrl-C", facts={"url": f"{server.url}/metrics"})
        )
        gc.collect()
        gc.freeze()
        threading.Event().wait()
