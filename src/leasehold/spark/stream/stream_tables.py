"""A streaming query of `format("leasehold")` and the tables that it fills: what each is told of the other.

Owns the text of the option `tables`, which `EntityTable.stream_options` writes and the source reads, and the mark that
the source leaves on its column `hub`: for which consumer group, pipeline and tables the rows are read. On the other
columns of the fence it says that they are the source's own. Spark carries a column's metadata through projections,
filters and `foreachBatch`, so that a table can look at the mark of the rows that it is given. The mark names tables by
their identity and has no URL: metadata ends up in files that others read.

Promises that a table refuses rows which are not read for it, by name and with the remedy; rows without a mark, from
another source, pass. `query_batches.py` finds out whether rows without one are of this source all the same.

Why the source is told the tables, and does not find them out: it runs in a process of its own, and Spark gives it no
way back from `foreachBatch`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from leasehold.backends import FILE_SCHEMES, file_of
from leasehold.errors import ConfigError
from leasehold.model import BEFORE_FIRST
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table import FENCE_COLUMNS, HUB

MARK = "leasehold"
"""The key of the mark in the metadata of the column `hub`."""
OWN = "source"
"""The mark on the other columns of the fence."""
REMEDY = "Give the stream what the table says of itself: .options(**table.stream_options())"


@dataclass(frozen=True, slots=True)
class TableAddress:
    """Where an entity table is, and what it is: enough to ask it for its watermarks. The URL may carry a secret."""

    identity: str
    url: str = field(repr=False)
    spec: TableSpec

    @classmethod
    def of(cls, identity: str, url: str, spec: TableSpec, base: Path) -> TableAddress:
        """The address of a table, the same in every working directory."""
        scheme = url.partition("://")[0]
        if scheme in FILE_SCHEMES:
            url = f"{scheme}:///{quote(str(file_of(url, base, 'url').absolute()))}"
        return cls(identity, url, spec)


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
            f"the tables of one query belong to one pipeline and one consumer group, and {spec.name} belongs "
            f"to {spec.pipeline!r} and {spec.consumer_group!r}",
            "Name the same in both, or read for the other by a query of its own",
        )


def addresses_text(addresses: Sequence[TableAddress]) -> str:
    """These addresses as the option `tables`."""
    return json.dumps([{"identity": one.identity, "url": one.url, "spec": asdict(one.spec)} for one in addresses])


def read_addresses(text: str, name: str) -> tuple[TableAddress, ...]:
    """The addresses in the option of this name. Raises `ConfigError`."""
    try:
        return tuple(TableAddress(one["identity"], one["url"], TableSpec(**one["spec"])) for one in json.loads(text))
    except (ValueError, TypeError, KeyError):
        raise ConfigError(name, "…", "not what EntityTable.stream_options gives", REMEDY) from None


@dataclass(frozen=True, slots=True)
class Origin:
    """For whom rows were read, and how long a batch of them may take, in seconds: the mark on them."""

    consumer_group: str
    pipeline: str
    tables: tuple[str, ...]
    stall_timeout: float = 600.0

    def metadata(self) -> dict[str, Any]:
        """The mark as a column's metadata."""
        mark = {"consumerGroup": self.consumer_group, "pipeline": self.pipeline, "tables": list(self.tables)}
        return {MARK: {**mark, "stallTimeout": self.stall_timeout}}

    def marks(self) -> dict[str, dict[str, Any]]:
        """The metadata of each column of the fence: the mark on `hub`, and that they are the source's on the others."""
        return {**{name: {MARK: OWN} for name in FENCE_COLUMNS}, HUB: self.metadata()}


def origin_of(metadata: Mapping[str, Any]) -> Origin | None:
    """The mark in a column's metadata; None where there is none that can be read."""
    mark = metadata.get(MARK)
    if not isinstance(mark, Mapping):
        return None
    group, pipeline, tables = mark.get("consumerGroup"), mark.get("pipeline"), mark.get("tables")
    stall = mark.get("stallTimeout")
    if not (isinstance(group, str) and isinstance(pipeline, str) and isinstance(tables, Sequence)):
        return None
    if not (isinstance(stall, int | float) and stall > 0):
        return None
    return Origin(group, pipeline, tuple(map(str, tables)), float(stall))


def check_origin(origin: Origin, spec: TableSpec, identity: Callable[[], str]) -> None:
    """Refuse rows that were not read for this table: it would get only a part of the events."""
    if origin.consumer_group != spec.consumer_group:
        raise ConfigError(
            "consumerGroup",
            origin.consumer_group,
            f"the rows were read as this consumer group, and the table {spec.name} keeps watermarks of "
            f"{spec.consumer_group!r}",
            "Name the same consumer group in both",
        )
    if origin.pipeline != spec.pipeline:
        raise ConfigError(
            "pipeline",
            origin.pipeline or None,
            f"the rows were read for {'this pipeline' if origin.pipeline else 'no pipeline by name'}, and the table "
            f"{spec.name} belongs to {spec.pipeline!r}: what reads the same consumer group for something else would "
            "get the other part of the events",
            REMEDY,
        )
    if identity() not in origin.tables:
        raise ConfigError(
            "tables",
            f"{len(origin.tables)} of them",
            f"the stream was not told that its rows go to the table {spec.name}: two queries that read one consumer "
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
