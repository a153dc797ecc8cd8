"""`leasehold init`: makes all that a pipeline file needs, a store's tables, a topic or a log, before the first use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasehold.backends import masked
from leasehold.cli.options.numbers import FiniteRange
from leasehold.cli.options.settings import set_option
from leasehold.cli.options.waiting import patiently, said_when_slow
from leasehold.cli.output import Column, JsonOutput, Output, Result, ResultTable, output_option
from leasehold.errors import ConfigError, MissingDependency, UsageError
from leasehold.printable import counted, excerpt, printable_lines

if TYPE_CHECKING:
    import pyarrow as pa

    from leasehold.operations.making import Made, Part
    from leasehold.pipeline_file import PipelineFile

_APPEARS = 15.0
"""Seconds within which a topic that was made is known to the broker that is asked."""
_COLUMNS = (Column("component", "For"), Column("outcome", "What was done"), Column("version", "Version", right=True))


@click.command(short_help="Make what a pipeline or a store needs, a topic or a log.")
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
@click.option(
    "--as",
    "acting",
    metavar="USER",
    help="Of Postgres: who makes the tables and grants the rights; its password from the environment (PGPASSWORD).",
)
@click.option(
    "--grant-to", "role", metavar="ROLE", help="Of Postgres: who is given the rights. By default the user of the URL."
)
@click.option("--sql", is_flag=True, help="Make nothing: print the SQL that does, with every GRANT, for a DBA.")
@click.option("--timeout", type=FiniteRange(min=0.1), default=30.0, show_default=True, help="Seconds a call may take.")
@set_option
@output_option
def init(
    url: str,
    partitions: int | None,
    replication_factor: int | None,
    config: tuple[str, ...],
    acting: str | None,
    role: str | None,
    sql: bool,
    timeout: float,
    settings: tuple[str, ...],
    output: Output,
) -> None:
    """Make what a pipeline or a store needs, a topic or a log.

    With a pipeline file all that its run needs is made: tables of its stores, its entity table, and those kept beside
    it. Spark is started only where the entity table is missing and a transform says its columns. Instances do the same
    when they start. This is for doing it first, as a user who may make tables: --as USER names that user, and the user
    of the file is given the rights that a run needs, and no others. What is as it should be is left alone, and another
    version is refused. --sql prints the statements instead, for somebody who runs them.

    With the URL of a store the tables for ownership and checkpoints, and those for leases, are made; what was removed
    is made again.

    With a kafka:// URL the topic is made, with what the cluster says where nothing is said here; with a log:// URL the
    log. One that is there is left as it is: other numbers of partitions than it has are refused, but a log grows.

    \b
    Example:
      leasehold init flights.toml
      PGPASSWORD=… leasehold init flights.toml --as dba
      leasehold init flights.toml --sql > flights.sql
      leasehold init sqlite:///flights.db
      leasehold init kafka://broker:9092/flights --partitions 8 --topic-config retention.ms=604800000
    """
    of_hub = url.startswith(("kafka://", "log://"))
    if of_hub and (sql or acting is not None or role is not None):
        raise ConfigError("--sql, --as or --grant-to", None, "is for tables, and this is a hub", "Leave it out")
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
    who = _Who(acting, role, sql, timeout)
    if is_file:
        _pipeline(Path(url), settings, who, output)
        return
    check_lasting(url)
    _at_store(url, who, output)


@dataclass(frozen=True, slots=True)
class _Who:
    """Who makes the tables and who is given the rights, in Postgres; with `sql` what would is printed."""

    acting: str | None
    role: str | None
    sql: bool
    timeout: float

    def check(self, urls: Sequence[str]) -> None:
        """Refuse names of roles where no database has any. Raises `ConfigError`."""
        from leasehold.operations.asking_rights import has_rights

        if not any(map(has_rights, urls)):
            for option, value in (("--as", self.acting), ("--grant-to", self.role)):
                if value is not None:
                    raise ConfigError(option, value, "is for postgresql:// alone", "Leave it out")


def _at_store(url: str, who: _Who, output: Output) -> None:
    """Make what a store and its leases need at one URL."""
    from leasehold.operations.making import part_of
    from leasehold.operations.rights import Use

    who.check([url])
    part = part_of(url, Use(stores=True, leases=True), acting=who.acting, role=who.role, timeout=who.timeout)
    _show([part], who, output, f"{masked(url)} is ready", {"store": masked(url)})


def _pipeline(file: Path, settings: tuple[str, ...], who: _Who, output: Output) -> None:
    """Make all that the pipeline of a file needs beside its hub."""
    from leasehold.operations.making import part_of, table_is_there
    from leasehold.operations.rights import uses_of
    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.pipeline_values import parse_settings

    pipeline = read_pipeline_file(file, settings=parse_settings(settings))
    uses = uses_of(pipeline)
    for url in (pipeline.ownership_url, pipeline.checkpoint_url):
        if url is not None:
            check_lasting(url)
    who.check(list(uses))
    parts = []
    for url, use in ((url, use) for url, its in uses.items() for use in its):
        part = part_of(url, use, acting=who.acting, role=who.role, timeout=who.timeout)
        if use.table is not None and not table_is_there(part, who.timeout):
            part = replace(part, columns=_columns(pipeline))
        parts.append(part)
    _show(parts, who, output, f"{pipeline.name} is ready", {"pipeline": pipeline.name})


def _columns(pipeline: PipelineFile) -> pa.Schema:
    """The columns of the entity table, with those of the fence: Spark says what a transform gives."""
    from leasehold.projected.columns_of_file import known_columns

    if (known := known_columns(pipeline)) is not None:
        return known
    try:
        from leasehold.spark.checking import columns_of
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("pyspark", "py4j"):
            raise MissingDependency("leasehold init of a table whose columns a transform gives", "spark") from error
        raise
    with said_when_slow("Spark"):
        return columns_of(pipeline)


def _show(parts: Sequence[Part], who: _Who, output: Output, ready: str, facts: dict[str, object]) -> None:
    """Make the parts, or print what makes them."""
    from leasehold.operations.making import make, statements

    if not who.sql:
        rows: list[Made] = []
        for part in parts:
            with said_when_slow(f"the server of {masked(part.url)}"):
                rows += make(part, who.timeout)
        output.show(Result(summary=ready, facts=facts, table=ResultTable("components", _COLUMNS, rows)))
        return
    printed: dict[str, list[str]] = {}
    for part in parts:
        with said_when_slow(f"the server of {masked(part.url)}"):
            its = printed.setdefault(masked(part.url), [])
            its += [one for one in statements(part, who.timeout) if one not in its]
    if isinstance(output, JsonOutput):
        output.show(Result(facts={**facts, "statements": printed}))
        return
    _check_as_they_are([one for its in printed.values() for one in its])
    for place, its in printed.items():
        click.echo(printable_lines(f"-- {place}"))
        for one in its:
            click.echo(printable_lines(one if one.startswith("--") else f"{one};"))


def _check_as_they_are(statements: Sequence[str]) -> None:
    """Refuse to print a name with an escape in it: the statement would be about another one. Raises `UsageError`."""
    for one in statements:
        if not one.startswith("--") and printable_lines(one) != one:
            raise UsageError(
                f"a statement has a name with a character that cannot be printed, and with an escape in its place it "
                f"would be about another: {excerpt(one)}. `leasehold init --sql --json` has all statements as they "
                "are; or take a name without it"
            )


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
