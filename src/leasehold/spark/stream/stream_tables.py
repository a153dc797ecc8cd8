"""A streaming query of `format("leasehold")` and the tables that it fills: what each is told of the other.

Owns what a table says of itself to the source (`options_of`), what it makes of the mark on the rows that it is given
(`plan/origins.py`), and the tables as the source asks them. Promises that a table refuses rows which are not read for
it, by name and with the remedy; rows without a mark, from another source, pass. `query_batches.py` finds out whether
rows without one are of this source all the same.

Why the source is told the tables, and does not find them out: it runs in a process of its own, and Spark gives it no
way back from `foreachBatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from leasehold.errors import ConfigError
from leasehold.model import BEFORE_FIRST
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.rules.fence import Watermark
from leasehold.spark.plan.origins import REMEDY, Origin, TableAddress, addresses_text


def options_of(tables: Sequence[tuple[TableSpec, str, str, Path]]) -> dict[str, str]:
    """What a stream that fills these tables is to be told: each by its spec, identity, URL and the URL's base."""
    spec = tables[0][0]
    for other, *_ in tables[1:]:
        check_same_reader(spec, other)
    addresses = [TableAddress.of(identity, url, its, base) for its, identity, url, base in tables]
    return {"pipeline": spec.pipeline, "consumerGroup": spec.consumer_group, "tables": addresses_text(addresses)}


def check_same_reader(spec: TableSpec, other: TableSpec) -> None:
    """Refuse a table that one query cannot fill beside the table of `spec`."""
    if (other.pipeline, other.consumer_group) != (spec.pipeline, spec.consumer_group):
        raise ConfigError(
            "pipeline",
            other.pipeline,
            f"the tables of one query belong to one pipeline and one consumer group, and {spec.called} belongs "
            f"to {spec.pipeline!r} and {spec.consumer_group!r}",
            "Name the same in both, or read for the other by a query of its own",
        )


def check_origin(origin: Origin, spec: TableSpec, identity: Callable[[], str]) -> None:
    """Refuse rows that were not read for this table: it would get only a part of the events."""
    if origin.consumer_group != spec.consumer_group:
        raise ConfigError(
            "consumerGroup",
            origin.consumer_group,
            f"the rows were read as this consumer group, and the table {spec.called} keeps watermarks of "
            f"{spec.consumer_group!r}",
            "Name the same consumer group in both",
        )
    if origin.pipeline != spec.pipeline:
        raise ConfigError(
            "pipeline",
            origin.pipeline or None,
            f"the rows were read for {'this pipeline' if origin.pipeline else 'no pipeline by name'}, and the table "
            f"{spec.called} belongs to {spec.pipeline!r}: what reads the same consumer group for something else would "
            "get the other part of the events",
            REMEDY,
        )
    if identity() not in origin.tables:
        raise ConfigError(
            "tables",
            f"{len(origin.tables)} of them",
            f"the stream was not told that its rows go to the table {spec.called}: two queries that read one consumer "
            "group for two tables would each get a part of the events",
            f"{REMEDY}. A query that fills several tables names all of them: one.stream_options(other). A query of "
            "its own needs a consumer group of its own",
        )


class Tables:
    """The tables that one query fills, asked together: what only some of them hold is not done."""

    def __init__(self, addresses: Sequence[TableAddress]) -> None:
        self._sinks = [open_sink(one.url, one.spec) for one in addresses]

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """Of each partition of `hub` that a table knows: the highest level, and the place that all have reached."""
        found = [sink.watermarks(hub) for sink in self._sinks]
        nothing = Watermark(BEFORE_FIRST)
        return {
            partition: _both([marks.get(partition, nothing) for marks in found])
            for partition in sorted({partition for marks in found for partition in marks})
        }

    def close(self) -> None:
        """Close this thread's connections."""
        for sink in self._sinks:
            sink.close()


def _both(marks: Sequence[Watermark]) -> Watermark:
    return Watermark(
        min(one.sequence_number for one in marks),
        max(one.owner_level for one in marks),
        whole=all(one.whole for one in marks),
        disputed=any(one.disputed for one in marks),
    )
