"""What has happened between two looks, and why."""

from __future__ import annotations

import pytest

from leasehold.operations.moves import Move, MoveKind, moves
from leasehold.operations.progress import PartitionProgress
from tests.dashboard.looks import group, row

CASES = [
    (row(), row(), []),
    (row(checkpoint=10), row(checkpoint=15), []),
    (row(owner=""), row(owner="b/1"), [(MoveKind.CLAIMED, "")]),
    (row(alive=False, age=7.2), row(owner="b/1"), [(MoveKind.TAKEN_OVER, "a/1 had not renewed for 7 s")]),
    (row(alive=False, age=None), row(owner="b/1"), [(MoveKind.TAKEN_OVER, "a/1 had not renewed")]),
    (row(asked_by="b/1"), row(owner="b/1"), [(MoveKind.HANDED_OVER, "b/1 asked for it")]),
    (row(asked_by="c/1"), row(owner="b/1"), [(MoveKind.HANDED_OVER, "c/1 asked for it")]),
    (row(), row(owner="b/1"), [(MoveKind.STOLEN, "")]),
    (row(), row(owner="a/2"), [(MoveKind.TAKEN_BACK, "the instance was started again")]),
    (row(), row(owner_level=2), [(MoveKind.TAKEN_BACK, "")]),
    (row(asked_by="b/1"), row(owner=""), [(MoveKind.RELINQUISHED, "b/1 asked for it")]),
    (row(), row(alive=False, age=6.4), [(MoveKind.EXPIRED, "the last time 6 s ago")]),
    (row(alive=False), row(), [(MoveKind.RENEWED, "")]),
    (row(), row(failures=3, last_error="boom"), [(MoveKind.SUSPECTED, "boom")]),
    (row(failures=3), row(), [(MoveKind.CLEARED, "")]),
    (row(), row(checkpoint=4), [(MoveKind.RESET, "from 10 to 4")]),
    (row(), row(checkpoint=None), [(MoveKind.RESET, "from 10 to no checkpoint")]),
]


@pytest.mark.parametrize(("old", "new", "expected"), CASES)
def test_of_a_partition(old: PartitionProgress, new: PartitionProgress, expected: list[tuple[MoveKind, str]]) -> None:
    """The owners count as instances throughout: nobody joins or leaves."""
    names = ("a/1", "a/2", "b/1")
    found = moves(group(old, instances=names), group(new, instances=names), 5.0)
    assert [(one.kind, one.reason) for one in found] == expected
    for one in found:
        assert (one.at, one.partition, one.owner) == (5.0, "0", new.owner)


@pytest.mark.parametrize(
    ("age", "elapsed", "instances", "kind", "reason"),
    [
        (5.5, 1.0, ("b/1",), MoveKind.TAKEN_OVER, "a/1 had not renewed for 6 s"),
        (5.5, 1.0, ("a/1", "b/1"), MoveKind.TAKEN_OVER, "a/1 had not renewed for 6 s"),
        (0.5, 1.0, ("b/1",), MoveKind.CLAIMED, "a/1 has left"),
        (0.5, 1.0, ("a/1", "b/1"), MoveKind.STOLEN, ""),
        (None, 1.0, ("b/1",), MoveKind.TAKEN_OVER, "a/1 had not renewed"),
        (None, 1.0, ("a/1", "b/1"), MoveKind.STOLEN, ""),
    ],
)
def test_an_owner_that_was_alive_at_the_look_before(
    age: float | None, elapsed: float, instances: tuple[str, ...], kind: MoveKind, reason: str
) -> None:
    before, now = group(row(age=age)), group(row(owner="b/1"), instances=instances)
    found = moves(before, now, 9.0, elapsed=elapsed, expiration=6.0)
    assert [(one.kind, one.reason) for one in found if one.partition] == [(kind, reason)]


def test_instances_come_and_go_and_the_first_look_shows_nothing() -> None:
    now = group(row())
    assert moves(None, now, 1.0) == []
    assert moves(group(instances=("b/1",)), now, 1.0) == [
        Move(1.0, MoveKind.JOINED, owner="a/1"),
        Move(1.0, MoveKind.LEFT, owner="b/1"),
    ]
    assert moves(now, group(row(), row("1", "a/1")), 1.0) == []  # a partition that the hub has made meanwhile
