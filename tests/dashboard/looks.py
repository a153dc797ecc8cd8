"""Looks at groups, made by hand."""

from __future__ import annotations

from typing import Any

from leasehold.operations.progress import GroupProgress, InstanceProgress, PartitionProgress


def row(partition: str = "0", owner: str = "a/1", **more: Any) -> PartitionProgress:
    """A partition that is held, unless said."""
    said: dict[str, Any] = {"alive": bool(owner), "owner_level": 1, "age": 0.5, "checkpoint": 10, "begin": 0, "end": 20}
    return PartitionProgress(partition, owner, **{**said, "lag": 10, **more})


def group(*rows: PartitionProgress, instances: tuple[str, ...] | None = None) -> GroupProgress:
    """A group of these partitions; its instances are the owners that are alive, unless said."""
    names = sorted({one.owner for one in rows if one.alive}) if instances is None else instances
    held = [InstanceProgress(name, sum(one.owner == name for one in rows)) for name in names]
    return GroupProgress(rows, tuple(held), ())
