"""A handled table on Spark, its driver's side alone: killed by SIGKILL when it comes to a step for the N-th time.

    python -m tests.handlers.dying_handlers FOLDER URL MODE LEVEL STEP N

Tasks run in this process, since no step of theirs writes anything. `LEVEL` is the owner level of all partitions. A
process that is not killed ends when all events of the hub are applied, and none is parked.
"""

from __future__ import annotations

import pickle
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from leasehold.handlers import Failures, Retries, Spread
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.hubs.log.hub import LogHub
from leasehold.model import EventRange
from leasehold.sinks.rules.batch import Batch
from leasehold.spark import HandledOnSpark
from leasehold.spark.handlers.committing import CommittingTable
from leasehold.spark.handlers.lanes import COLUMNS
from tests.faults.dying import die_behind
from tests.waiting import take

AT_A_TIME = 2
STEPS: dict[str, tuple[type, str]] = {
    "asked": (CommittingTable, "piece"),
    "answered": (HandledOnSpark, "_called"),
    "computed": (CommittingTable, "_compute"),
    "committed": (CommittingTable, "take"),
    "written": (HandledOnSpark, "write"),
    "tried": (HandledOnSpark, "try_parked"),
}
MODES: dict[str, Callable[[str], dict[str, Any]]] = {
    "keyed": lambda url: {},
    "spread": lambda url: {"spread": Spread("n")},
    "exclusive": lambda url: {"spread": Spread("n", exclusive=url)},
}


@entity(keys=["order_id"])
def order(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    """Keeps the trail of its events; each fifth is parked first, and applied at the second try."""
    if event.row["n"] % 5 == 4 and event.delivery == 1:
        raise ConnectionError("not now")
    return {"trail": f"{state['trail']} {event.row['n']}" if state else str(event.row["n"])}


class Here:
    """Tasks in this process. What goes to one and comes back is a copy, as with those of Spark."""

    cores = 2

    def each(self, function: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
        return [_copied(function(_copied(value))) for value in values]

    def sorted_out(
        self,
        split: Callable[[Any], Iterable[tuple[int, Any]]],
        compute: Callable[[Iterable[tuple[int, Any]]], Iterable[Any]],
        values: Sequence[Any],
        tasks: int,
    ) -> list[Any]:
        parts: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        for value in values:
            for number, part in split(_copied(value)):
                parts[number].append((number, _copied(part)))
        return [_copied(answer) for mine in parts.values() for answer in compute(mine)]


def _copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301


def main(folder: Path, url: str, mode: str, level: int) -> None:
    """Apply all events of the hub."""
    table = HandledOnSpark(
        *(order, url),
        table="orders",
        pipeline="orders",
        schema="order_id STRING, n BIGINT",
        state="order_id STRING, trail STRING",
        failures=Failures(retries=Retries(deliveries=3, first=0.01, longest=0.01)),
        **MODES[mode](f"sqlite:////{folder}/leases.db"),
    )
    table._tasks = Here()
    with closing(table), closing(LogHub(folder / "hub.db")) as hub:
        held = dict.fromkeys(hub.partition_properties(), level)
        while (batch := _next(hub, table, level)) is not None or _parked(table, hub):
            if batch is not None:
                table.write(batch, lambda hub, partition: level)
            table.try_parked(hub.identity, held)
            if batch is None:
                take(0.01)


def _next(hub: LogHub, table: HandledOnSpark, level: int) -> Batch | None:
    """The next events of each partition behind the table's watermark."""
    marks, parts, ranges = table.watermarks(hub.identity), list[pa.Table](), list[EventRange]()
    for partition, properties in hub.partition_properties().items():
        begin = marks[partition].sequence_number + 1 if partition in marks else properties.begin
        end = min(begin + AT_A_TIME, properties.end)
        if begin < end:
            ranges.append(EventRange(hub.identity, partition, level, begin, end))
            parts += [_columns(part, hub.identity, partition, level) for part in hub.read(partition, begin, end)]
    return Batch(pa.concat_tables(parts), ranges=ranges) if ranges else None


def _columns(part: Any, hub: str, partition: str, level: int) -> pa.Table:
    given: Mapping[str, Any] = {"hub": hub, "partition": partition, "ownerLevel": level}
    columns = [
        pa.array([given[name]] * len(part)) if name in given else part.column(part.schema.get_field_index(name))
        for name in COLUMNS
    ]
    return pa.table(columns, names=list(COLUMNS))


def _parked(table: HandledOnSpark, hub: LogHub) -> bool:
    return any(table._table._states.parked_entities(hub.identity, name) for name in hub.partition_properties())


if __name__ == "__main__":
    die_behind(*STEPS[sys.argv[5]], int(sys.argv[6]))
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
