"""`leasehold serve`: a log as an event hub, queues as a Service Bus namespace, a Kafka, a registry, or a Postgres."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from leasehold.backends import local_file_of
from leasehold.cli.options.numbers import FiniteRange
from leasehold.cli.output import Output, Result, output_option
from leasehold.errors import ConfigError
from leasehold.listening import is_loopback
from leasehold.printable import counted
from leasehold.signal_handlers import handle

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
                help="Make a subscription, and its topic; of Kafka a topic. As often as needed.",
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


@click.command(short_help="Serve an embedded log or queues to Azure's clients, a Kafka, a registry or a Postgres.")
@click.argument("url", metavar="URL|kafka|registry|postgres")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, show_default=True, help="The port; 0 takes a free one."
)
@click.option("--name", metavar="NAME", help="The name of the event hub; the file's name if not said.")
@click.option("--partitions", type=click.IntRange(1), metavar="N", help="Of Kafka: how many each topic has. [4]")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Of Postgres: where its data stay.",
)
@_queue_options
@output_option
def serve(
    url: str,
    host: str,
    port: int,
    name: str | None,
    partitions: int | None,
    keep: Path | None,
    request: _Asked,
    output: Output,
) -> None:
    """Serve an embedded log or queues to Azure's clients, a Kafka, a registry or a Postgres.

    For tests and trials. Prints the connection string, or the URL, and runs until Ctrl-C.

    log:///PATH is a local event hub: producers and consumers of the official Python client (azure-eventhub) work as
    with Azure: batches, partition keys, consumer groups, owner levels. Other processes may append to the log and read
    from it meanwhile.

    servicebus:///PATH is a local Service Bus namespace for its clients (azure-servicebus): queues, topics and
    subscriptions, as far as the options and the file say. A queue that is in the file keeps its messages, and takes the
    settings of this call if it is named again.

    There is no encryption and no check of keys: leave it at 127.0.0.1 unless the network is your own. At another
    address it says so.

    kafka is a cluster of one broker in memory, for clients of Kafka on this machine: librdkafka's mock cluster, with
    the topics of --topic. registry is a registry of schemas in memory, for Confluent's serializers. postgres is a real
    server for this machine, with a password made by chance; run by root, it works as the user pgserver. Each says what
    it keeps, and for how long.

    \b
    Examples:
      leasehold serve log:///hubs/flights.db --name flights
      leasehold serve servicebus:///bus.db --queue orders --topic news/all
      leasehold serve kafka --topic orders --partitions 4
      leasehold serve registry --port 8081
      leasehold serve postgres --keep pgdata
    """
    given = {
        "--host": host != "127.0.0.1",
        "--port": bool(port),
        "--name": name is not None,
        "--partitions": partitions is not None,
        "--keep": keep is not None,
        "--topic": bool(request.topics),
        "--queue and its like": request != _Asked(topics=request.topics),
    }
    kind = url.partition("://")[0]
    taken = _TAKEN.get(kind, ())
    if kind in _TAKEN and (refused := [option for option in given if given[option] and option not in taken]):
        raise ConfigError(refused[0], None, f"is not for {kind}", "Leave it out: leasehold serve --help")
    if url == "kafka":
        _serve_kafka(request.topics, partitions or 4, output)
    elif url == "registry":
        _serve_registry(port, output)
    elif url == "postgres":
        _serve_postgres(port, keep, output)
    elif kind == "servicebus":
        _serve_queues(url, host, port, request, output)
    else:
        _serve_log(url, host, port, name, output)


_TAKEN = {
    "kafka": ("--topic", "--partitions"),
    "postgres": ("--port", "--keep"),
    "registry": ("--port",),
    "log": ("--host", "--port", "--name"),
    "servicebus": ("--host", "--port", "--topic", "--queue and its like"),
}
"""The options of each kind of server."""


def _close_when_ended() -> None:
    """Let a server be closed also where `kill` ends this process, or where its terminal is closed."""
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) != signal.SIG_IGN:
            handle(each, signal.default_int_handler)


def _serve_kafka(topics: tuple[str, ...], partitions: int, output: Output) -> None:
    from leasehold_testkit.emulators.kafka import BOUNDS, KafkaServer

    if not topics:
        raise ConfigError("--topic", None, "a Kafka makes no topic later", "Name each: --topic orders")
    _close_when_ended()
    with closing(KafkaServer(dict.fromkeys(topics, partitions))) as server:
        urls = [server.url(topic) for topic in topics]
        each = "" if len(topics) == 1 else " each"
        output.show(
            Result(
                summary="\n".join(urls) + f"\n\nserving {counted(len(topics), 'topic')} with "
                f"{counted(partitions, 'partition')}{each} until Ctrl-C, for trying only. {BOUNDS}",
                facts={"servers": server.servers, "topics": list(topics), "urls": urls, "partitions": partitions},
            )
        )
        threading.Event().wait()


def _serve_registry(port: int, output: Output) -> None:
    from leasehold_testkit.emulators.registry import BOUNDS, RegistryServer

    _close_when_ended()
    with closing(RegistryServer(port)) as server:
        output.show(
            Result(
                summary=f"{server.url}\n\nserving a registry of schemas until Ctrl-C, for trying only, and to this "
                f"machine alone. {BOUNDS}",
                facts={"url": server.url, "port": server.port},
            )
        )
        threading.Event().wait()


def _serve_postgres(port: int, keep: Path | None, output: Output) -> None:
    from leasehold_testkit.emulators.postgres import PostgresServer

    _close_when_ended()
    with closing(PostgresServer(port, keep)) as server:
        data = "The data are gone at the end" if keep is None else f"The data, and the password, stay in {keep}"
        output.show(
            Result(
                summary=f"{server.url}\n\nserving Postgres until Ctrl-C, for trying only, and to this machine alone, "
                f"without encryption. The user postgres may do everything. {data}",
                facts={"url": server.url, "port": server.port, "keep": None if keep is None else str(keep)},
            )
        )
        threading.Event().wait()


def _serve_log(url: str, host: str, port: int, name: str | None, output: Output) -> None:
    if not url.startswith("log://"):
        rule = "only log:///PATH (an embedded log), servicebus:///PATH (queues), kafka and postgres can be served"
        raise ConfigError("URL", url, rule, "Name one of them")
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
