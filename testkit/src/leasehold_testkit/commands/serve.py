"""`leasehold serve`: an embedded log as a local event hub, or a file of queues as a local Service Bus namespace."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from leasehold.backends import local_file_of
from leasehold.cli.options.numbers import FiniteRange
from leasehold.cli.output import Output, Result, output_option
from leasehold.errors import ConfigError
from leasehold.listening import is_loopback

_REACHED = (
    "leasehold: warning: {host} may be reached from other machines. Whoever reaches it may read every {what} "
    "and send: nothing is encrypted, and no key is checked. Leave --host out to serve this machine alone"
)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The queues that a call makes, and the settings of all of them, by the names of `QueueSettings`."""

    queues: tuple[str, ...] = ()
    session_queues: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


def _queue_options(command: Callable[..., object]) -> Any:
    """The options that make queues; the command gets them as `request: _Asked`."""

    @functools.wraps(command)
    def collecting(
        queues: tuple[str, ...], session_queues: tuple[str, ...], topics: tuple[str, ...], **arguments: Any
    ) -> object:
        named = {name: arguments.pop(name) for name in ("lock_duration", "max_delivery_count", "duplicate_window")}
        settings = {name: value for name, value in named.items() if value is not None}
        return command(request=_Asked(queues, session_queues, topics, settings), **arguments)

    decorated: Any = collecting
    for option in reversed(
        (
            click.option("--queue", "queues", multiple=True, metavar="NAME", help="Make a queue. As often as needed."),
            click.option(
                "--session-queue", "session_queues", multiple=True, metavar="NAME", help="The same, with sessions."
            ),
            click.option(
                "--topic",
                "topics",
                multiple=True,
                metavar="TOPIC/NAME",
                help="Make a subscription, and its topic. As often as needed.",
            ),
            click.option(
                "--lock-duration", type=FiniteRange(0, min_open=True), help="Of queues made here, in seconds. [60]"
            ),
            click.option("--max-delivery-count", type=click.IntRange(1), help="Of queues made here. [10]"),
            click.option(
                "--duplicate-window", type=FiniteRange(0), help="Of queues made here, in seconds; 0 for none. [0]"
            ),
        )
    ):
        decorated = option(decorated)
    return decorated


@click.command(short_help="Serve an embedded log, or queues, to Azure's clients.")
@click.argument("url", metavar="URL")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, show_default=True, help="The port; 0 takes a free one."
)
@click.option("--name", metavar="NAME", help="The name of the event hub; the file's name if not said.")
@_queue_options
@output_option
def serve(
    url: str,
    host: str,
    port: int,
    name: str | None,
    request: _Asked,
    output: Output,
) -> None:
    """Serve an embedded log, or queues, to Azure's clients.

    For tests and trials. Prints the connection string and runs until Ctrl-C.

    log:///PATH is a local event hub: producers and consumers of the official Python client (azure-eventhub) work as
    with Azure: batches, partition keys, consumer groups, owner levels. Other processes may append to the log and read
    from it meanwhile.

    servicebus:///PATH is a local Service Bus namespace for its clients (azure-servicebus): queues, topics and
    subscriptions, as far as the options and the file say. A queue that is in the file keeps its messages, and takes the
    settings of this call if it is named again.

    There is no encryption and no check of keys: leave it at 127.0.0.1 unless the network is your own. At another
    address it says so.

    \b
    Examples:
      leasehold serve log:///hubs/flights.db --name flights
      leasehold serve servicebus:///bus.db --queue orders --topic news/all
    """
    if url.startswith("servicebus://"):
        if name is not None:
            raise ConfigError("--name", name, "queues have names of their own", "Use --queue")
        _serve_queues(url, host, port, request, output)
    elif request != _Asked():
        raise ConfigError("URL", url, "queues are in servicebus:///PATH, and a log has none", "Name such a file")
    else:
        _serve_log(url, host, port, name, output)


def _serve_log(url: str, host: str, port: int, name: str | None, output: Output) -> None:
    if not url.startswith("log://"):
        rule = "only an embedded log (log:///PATH) or a file of queues (servicebus:///PATH) can be served"
        raise ConfigError("URL", url, rule, "Name one")
    path = local_file_of(url, Path.cwd(), "hub")
    from leasehold.hubs.log.hub import LogHub
    from leasehold_testkit.emulators.event_hubs import EventHubsServer
    from leasehold_testkit.emulators.event_hubs.log_store import LogBacked

    if not is_loopback(host):
        output.note(_REACHED.format(host=host, what="event"))
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


def _serve_queues(url: str, host: str, port: int, request: _Asked, output: Output) -> None:
    from leasehold_testkit.emulators.service_bus import QueueSettings, ServiceBusServer, TopicSettings

    path = local_file_of(url, Path.cwd(), "URL")
    plain, sessions = QueueSettings(**request.settings), QueueSettings(**request.settings, requires_session=True)
    topics: dict[str, dict[str, QueueSettings]] = {}
    for each in request.topics:
        topic, _, subscription = each.rpartition("/")
        if not topic:
            raise ConfigError("--topic", each, "TOPIC/SUBSCRIPTION", "Name the subscription behind the topic")
        topics.setdefault(topic, {})[subscription] = plain
    if not is_loopback(host):
        output.note(_REACHED.format(host=host, what="message"))
    server = ServiceBusServer(
        {**dict.fromkeys(request.queues, plain), **dict.fromkeys(request.session_queues, sessions)},
        {name: TopicSettings(subscriptions) for name, subscriptions in topics.items()},
        path=path,
        host=host,
        port=port,
    )
    with server:
        if not server.names:
            raise ConfigError("URL", url, "the file has no queue yet", "Make one with --queue NAME")
        string = server.connection_string()
        output.show(
            Result(
                summary=f"{string}\n\nserving {', '.join(server.names)} from {path} until Ctrl-C",
                facts={"connectionString": string, "entities": server.names, "port": server.port},
            )
        )
        threading.Event().wait()
