"""What an instance holds partitions for.

Owns the value that says so to a `PartitionManager`. Refuses nothing: whether two instances are for the same is looked
at where they meet (`membership`, `attaching`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leasehold.ownership.starting import KnowsWatermarks


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """What an instance of a consumer group works for, and on what.

    pipeline    its name: two instances that name different ones do not share a group; default: none
    table       the table that the events are for. It is asked where a checkpoint is missing: a partition that it knows
                is not new; default: nothing is asked
    share       which of the hub's partitions concern this instance at all; default: all of them
    reads_here  events are read in this process; default: elsewhere, as by Spark's tasks
    """

    pipeline: str = ""
    table: KnowsWatermarks | None = None
    share: Callable[[tuple[str, ...]], tuple[str, ...]] | None = None
    reads_here: bool = False
