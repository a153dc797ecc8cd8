"""What the driver tells the tasks of a batch, and what they tell it: values and their text.

Owns the form of both. An *order* says which task reads which ranges; it reaches the tasks as one text, in a local
property of the job where there is one, so that the plan of a batch may be executed again for the next. A *receipt* says
what a task has read. Promises that an order without its receipts is noticed: a DataFrame of an earlier batch, or one
whose rows Spark has kept from it, has run no task for this order.

The name of a batch is made of its ranges and their owner levels, so that it is the same in every process.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from leasehold.errors import StaleBatch
from leasehold.model import EventRange
from leasehold.registries import RegisteredSchema, Schemas
from leasehold.spark.plan.offsets import ReadRange


@dataclass(frozen=True, slots=True)
class Order:
    """What the tasks of one try of a batch are to read. `mean` is what an event weighs, in bytes, as far as known.

    `skipped` are sequence numbers of events, by partition, that tasks read and give to nobody. `schemas` are those of
    the registry that this process has, by number: tasks ask no registry.
    """

    hub: str
    ranges: tuple[EventRange, ...]
    tasks: tuple[tuple[ReadRange, ...], ...]
    most_bytes: int | None = None
    mean: Mapping[str, float] = field(default_factory=dict)
    skipped: Mapping[str, Sequence[int]] = field(default_factory=dict)
    schemas: Schemas = field(default_factory=dict)
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    def text(self) -> str:
        """The order as tasks read it."""
        tasks = [[[one.partition, one.start, one.end, one.owner_level] for one in task] for task in self.tasks]
        most, mean = self.most_bytes, {partition: round(mean) for partition, mean in self.mean.items()}
        told = {"token": self.token, "hub": self.hub, "tasks": tasks, "most_bytes": most, "mean": mean}
        schemas = {number: one and astuple(one) for number, one in self.schemas.items()}
        return json.dumps({**told, "skipped": dict(self.skipped), "schemas": schemas})

    def with_schemas(self, schemas: Schemas) -> Order:
        """The same, to be read anew with these schemas too."""
        return replace(self, schemas={**self.schemas, **schemas}, token=secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """What one task is to read."""

    token: str
    task: int
    hub: str
    ranges: tuple[ReadRange, ...]
    most_bytes: int | None
    mean: Mapping[str, float]
    skipped: Mapping[str, Sequence[int]] = field(default_factory=dict)
    schemas: Schemas = field(default_factory=dict)


def task_order(text: str, task: int) -> TaskOrder:
    """What the task of this number reads by the order of this text."""
    order = json.loads(text)
    ranges = tuple(ReadRange(*entry) for entry in order["tasks"][task])
    schemas = {int(number): one and _registered(*one) for number, one in order["schemas"].items()}
    return TaskOrder(
        order["token"], task, order["hub"], ranges, order["most_bytes"], order["mean"], order["skipped"], schemas
    )


def _registered(kind: str, text: str, files: Iterable[Sequence[str]], wrong: str) -> RegisteredSchema:
    return RegisteredSchema(kind, text, tuple((name, one) for name, one in files), wrong)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a task has read, to the end of each of its ranges: events and their bytes by partition.

    `rejected` are the events whose bodies it could not read, as an Arrow stream, None if there are none; `producers`
    the trace contexts of its events, where the loop has asked for them. It has waited `reading` seconds for the hub.
    `times` has the number of the last event of each partition, and when it was enqueued, in seconds since 1970.
    `unknown` are numbers of schemas that its order had not: what it has read does not count then.
    """

    token: str
    task: int
    events: Mapping[str, int]
    size: Mapping[str, int]
    rejected: bytes | None = None
    producers: tuple[tuple[str, str], ...] = ()
    reading: float = 0.0
    times: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()


def check_receipts(order: Order, receipts: Iterable[Receipt]) -> dict[int, Receipt]:
    """The receipts of this order by task, each once. Raises `StaleBatch` if a task of it has not run."""
    mine = {receipt.task: receipt for receipt in receipts if receipt.token == order.token}
    if missing := [number for number in range(len(order.tasks)) if number not in mine]:
        raise StaleBatch(
            f"{len(missing)} of the {len(order.tasks)} tasks of this batch have not run: the DataFrame holds rows that "
            "were computed for another batch, or only a part of this one. Make it anew from batch.events of this very "
            "batch, without cache, limit or persist"
        )
    return mine


def title(name: str, ranges: Sequence[EventRange]) -> str:
    """What Spark's UI shows of the jobs of a batch."""
    return f"leasehold {name}: {sum(map(len, ranges)):,} events ({describe(ranges)[:200]})"


def fitted(order: Order, tasks: int) -> Order:
    """The same order for exactly `tasks` tasks: for a DataFrame that was made for another order."""
    most = order.tasks[: tasks - 1]
    last = tuple(one for task in order.tasks[tasks - 1 :] for one in task)
    return replace(order, tasks=(*most, *[()] * (tasks - 1 - len(most)), last))


def describe(ranges: Iterable[EventRange]) -> str:
    """The ranges for people: `partition 3 [100, 200), partition 5 [7, 9)`."""
    return ", ".join(f"partition {one.partition} [{one.begin}, {one.end})" for one in sorted(ranges))
