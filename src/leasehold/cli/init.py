"""`leasehold init`: makes the tables of a store or of a pipeline file, a topic or a log on purpose, ahead of the
first use and as a user who may."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasehold.backends import masked
from leasehold.cli.options.numbers import FiniteRange
from leasehold.cli.options.settings import set_option
from leasehold.cli.options.waiting import patiently, said_when_slow
from leasehold.cli.output import Column, Output, Result, ResultTable, output_option
from leasehold.errors import ConfigError
from leasehold.printable import counted
from leasehold.stores.base import SchemaChange

if TYPE_CHECKING:
    from leasehold.sinks.base import Sink

_APPEARS = 15.0
"""Seconds within which a topic that was made is known to the broker that is asked."""
_COLUMNS = (Column("component", "For"), Column("outcome", "What was done"), Column("version", "Version", right=True))


@click.command(short_help="Make what a store keeps its records in, a topic or a log.")
@click.argument("url", metavar="STORE|HUB|PIPELINE.toml")
@click.option("--partitions", metavar="N", type=click.IntRange(min=1), help="Of a topic or a log: how many it has.")
@click.option(
    "--replication-factor", metavar="N", type=click.IntRange(min=1), help="Of a topic: on how many brokers each is."
)
@click.option(
    "--topic-config",
    "config",
    metavar="NAME=VALUE",
    multiple=True,
    help="Of a topic, for example retention.ms=604800000.",
)
@click.option("--timeout", type=FiniteRange(min=0.1), default=30.0, show_default=True, help="Seconds a call may take.")
@set_option
@output_option
def init(
    url: str,
    partitions: int | None,
    replication_factor: int | None,
    config: tuple[str, ...],
    timeout: float,
    settings: tuple[str, ...],
    output: Output,
) -> None:
    """Make what a store keeps its records in, a topic or a log.

    Tables for ownership and checkpoints, and those for leases, are made; what was removed is made again, what is as it
    should be is left alone, and another version is refused. Instances do the same when they start. This is for doing it
    first, as a user who may make tables, so that the instances' own need not.

    With a kafka:// URL the topic is made, with what the cluster says where nothing is said here; with a log:// URL the
    log. One that is there is left as it is: other numbers of partitions than it has are refused, but a log grows.

    With a pipeline file the tables of its stores are made, and those that its entity table shares with others. The
    entity table itself, and what belongs to it alone, the first instance makes, which knows its columns.

    \b
    Example:
      leasehold init sqlite:///flights.db
      leasehold init postgresql://admin@db.example/leasehold
      leasehold init flights.toml --set ownership.store=postgresql://admin@db.example/leasehold
      leasehold init kafka://broker:9092/flights --partitions 8 --topic-config retention.ms=604800000
    """
    is_file = url.endswith(".toml") and "://" not in url
    if settings and not is_file:
        raise ConfigError("--set", None, "is for a pipeline file alone", "Leave it out, or name the file")
    if url.startswith("kafka://"):
        output.show(_topic(url, partitions, replication_factor, config))
        return
    if config or replication_factor is not None:
        raise ConfigError(
            "--topic-config" if config else "--replication-factor", None, "is for kafka:// alone", "Leave it out"
        )
    if url.startswith("log://"):
        output.show(_log(url, partitions))
        return
    if partitions is not None:
        raise ConfigError("--partitions", partitions, "is for kafka:// and log:// alone", "Leave it out")
    if is_file:
        output.show(_pipeline(Path(url), settings, timeout))
        return
    check_lasting(url)
    keepers = _stores(url, timeout)
    table = ResultTable("components", _COLUMNS, _made(keepers))
    output.show(Result(summary=f"{masked(url)} is ready", facts={"store": masked(url)}, table=table))


def _stores(url: str, timeout: float) -> list[tuple[str, object]]:
    """What keeps records at the URL of a store."""
    from leasehold.backends import check_scheme
    from leasehold.stores import BACKENDS, LEASE_BACKENDS, open_lease_store, open_store

    scheme = check_scheme(url, "store", BACKENDS | LEASE_BACKENDS, "leasehold.stores")
    stores: list[tuple[str, object]] = []
    if scheme in BACKENDS or scheme not in LEASE_BACKENDS:
        stores.append(("stores", open_store(url, timeout=timeout)))
    if scheme in LEASE_BACKENDS:
        stores.append(("leases", open_lease_store(url, timeout=timeout)))
    return stores


def _pipeline(file: Path, settings: tuple[str, ...], timeout: float) -> Result:
    """Make what the pipeline of a file needs beside its hub."""
    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.pipeline_values import parse_settings
    from leasehold.sinks import open_sink

    pipeline = read_pipeline_file(file, settings=parse_settings(settings))
    urls = dict.fromkeys(url for url in (pipeline.ownership_url, pipeline.checkpoint_url) if url is not None)
    for url in urls:
        check_lasting(url)
    keepers = [keeper for url in urls for keeper in _stores(url, timeout)]
    sink = open_sink(pipeline.sink_url, pipeline.table_spec(), timeout=timeout)
    table = ResultTable("components", _COLUMNS, [*_made(keepers), _made_beside(sink)])
    return Result(summary=f"{pipeline.name} is ready", facts={"pipeline": pipeline.name}, table=table)


def _made(keepers: Sequence[tuple[str, object]]) -> list[tuple[str, str, int | None]]:
    from leasehold.stores.base import SchemaKeeper

    rows: list[tuple[str, str, int | None]] = []
    for component, keeper in keepers:
        if isinstance(keeper, SchemaKeeper):
            with said_when_slow(f"the server of the {component}"):
                rows.append((component, *_outcome(keeper.create_schema())))
        else:
            rows.append((component, "nothing to make", None))
    return rows


def _made_beside(sink: Sink) -> tuple[str, str, int | None]:
    from leasehold.sinks.features import SHARED_TABLES, offered

    component = "entity tables"
    if (keeper := offered(sink, SHARED_TABLES)) is None:
        return component, "nothing to make", None
    with said_when_slow(f"the server of the {component}"):
        made = keeper.make_shared_tables()
    return component, "made" if made else "was as it should be", None


def _topic(url: str, partitions: int | None, replication_factor: int | None, config: tuple[str, ...]) -> Result:
    """Make the topic at the URL, or say what is there."""
    from leasehold.backends import load_backend
    from leasehold.hubs import BACKENDS, open_hub

    load_backend(url, "hub", BACKENDS, "leasehold.hubs")  # names the extra where the client is missing
    from leasehold.hubs.kafka.admin import make_topic
    from leasehold.hubs.kafka.options import parse_kafka_url

    stated = [one.partition("=") for one in config]
    for name, equals, _ in stated:
        if not equals or not name:
            raise ConfigError(
                "--topic-config", name, "a setting of the topic is NAME=VALUE", "As in retention.ms=86400000"
            )
    settings = parse_kafka_url(url, os.environ)
    with said_when_slow(masked(url)):
        made = make_topic(settings, partitions, replication_factor, {name: value for name, _, value in stated})
    hub = patiently(lambda: open_hub(url), _APPEARS, masked(url))
    count = len(hub.partition_ids())
    hub.close()
    if partitions not in (None, count):
        raise ConfigError(
            "--partitions",
            partitions,
            f"the topic is there, with {counted(count, 'partition')}",
            "Leave it out; adding partitions moves keys, and is done with Kafka's own tools",
        )
    return _hub_result(settings.url, made, count)


def _log(url: str, partitions: int | None) -> Result:
    """Make the log at the URL, or grow the one that is there."""
    from leasehold.backends import load_backend, local_file_of
    from leasehold.hubs import BACKENDS

    load_backend(url, "hub", BACKENDS, "leasehold.hubs")
    from leasehold.hubs.log.hub import LogHub

    path = local_file_of(url, Path.cwd(), "hub")
    there = path.exists()
    hub = LogHub.create(path, partitions=partitions)
    count = len(hub.partition_ids())
    hub.close()
    return _hub_result(hub.url, not there, count)


def _hub_result(url: str, is_new: bool, partitions: int) -> Result:
    said = "was made" if is_new else "was there"
    return Result(
        summary=f"{url} {said}, with {counted(partitions, 'partition')}",
        facts={"hub": url, "made": is_new, "partitions": partitions},
    )


def check_lasting(url: str) -> None:
    """Refuse a store that ends with this process: whatever a command did there would be gone when it is done."""
    if url.startswith("memory:"):
        raise ConfigError(
            "STORE",
            url,
            "a store in memory lives in one process: this command would work on one of its own, gone when it ends",
            "It needs no making; name another store to share one between processes",
        )


def _outcome(change: SchemaChange | None) -> tuple[str, int | None]:
    if change is None:
        return "made, or was there", None
    if change.before == 0:
        return "made", change.after
    if change.remade:
        return f"made again, empty: {', '.join(change.remade)}", change.after
    return "was there", change.after
