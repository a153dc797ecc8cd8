"""`leasehold serve`: an embedded log, as a local event hub."""

from __future__ import annotations

import threading
from pathlib import Path

import click

from leasehold.backends import local_file_of
from leasehold.cli.output import Output, Result, output_option
from leasehold.errors import ConfigError, MissingDependency
from leasehold.listening import is_loopback


@click.command(short_help="Serve an embedded log to clients of Azure Event Hubs.")
@click.argument("hub", metavar="HUB_URL")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, show_default=True, help="The port; 0 takes a free one."
)
@click.option("--name", metavar="NAME", help="The name of the event hub; the file's name if not said.")
@output_option
def serve(hub: str, host: str, port: int, name: str | None, output: Output) -> None:
    """Serve an embedded log to clients of Azure Event Hubs.

    It is a local event hub, for tests and trials. Prints the connection string and runs until Ctrl-C. Producers
    and consumers of the official Python client (azure-eventhub) work as with Azure: batches, partition keys,
    consumer groups, owner levels. Other processes may append to the log and read from it meanwhile.

    There is no encryption and no check of keys: leave it at 127.0.0.1 unless the network is your own. At another
    address it says so.

    \b
    Example:
      leasehold serve log:///hubs/flights.db --name flights
    """
    if not hub.startswith("log://"):
        raise ConfigError("HUB_URL", hub, "only an embedded log (log:///PATH) can be served", "Name one")
    path = local_file_of(hub, Path.cwd(), "hub")
    try:
        from leasehold.emulators.event_hubs.log_store import LogBacked
        from leasehold.hubs.log.hub import LogHub
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pyarrow":
            raise MissingDependency("leasehold serve", "log") from error
        raise
    from leasehold.emulators.event_hubs import EventHubsServer

    if not is_loopback(host):
        output.note(
            f"leasehold: warning: {host} may be reached from other machines. Whoever reaches it may read every event "
            "and send: nothing is encrypted, and no key is checked. Leave --host out to serve this machine alone"
        )
    log = LogHub(path)
    name = name or path.stem
    with EventHubsServer({name: LogBacked(log)}, host=host, port=port) as server:
        string = server.connection_string(name)
        count = len(log.partition_ids())
        output.show(
            Result(
                summary=f"{string}\n\nserving {log.url} ({count} partitions) as {name} until Ctrl-C",
                facts={"connectionString": string, "hub": log.url, "name": name, "port": server.port},
            )
        )
        threading.Event().wait()
