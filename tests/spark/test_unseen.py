"""What a table has not seen: places, levels, and owners that stop anywhere and go on later."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from leasehold.model import EventRange
from leasehold.sinks import TableSpec
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold.spark.table.unseen import Piece, Unseen, pieces_of

HUB = "the hub"


@pytest.fixture
def sink(tmp_path: Path) -> SqliteSink:
    return SqliteSink(tmp_path / "table.db", TableSpec(name="t", pipeline="p", mode="append"))


def read(begin: int, end: int, level: int, *, whole: bool = True, modulo: int = 1) -> Batch:
    """The events `[begin, end)` of the one partition, but for those that a filter has dropped."""
    numbers = [n for n in range(begin, end) if n % modulo == 0]
    rows = pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "hub": pa.array([HUB] * len(numbers), pa.string()),
            "partition": pa.array(["0"] * len(numbers), pa.string()),
            "sequenceNumber": pa.array(numbers, pa.int64()),
            "ownerLevel": pa.array([level] * len(numbers), pa.int64()),
        }
    )
    return Batch(rows, ranges=[EventRange(HUB, "0", level, begin, end)] if whole else None)


def held(pieces: tuple[Piece, ...]) -> list[tuple[int, int, list[int]]]:
    return [(one.begin, one.end, one.rows["n"].to_pylist()) for one in pieces]


def test_pieces_stand_on_the_watermark_whatever_the_cuts(sink: SqliteSink) -> None:
    first = pieces_of(read(0, 5, 1), sink)
    assert held(first) == [(0, 5, [0, 1, 2, 3, 4])]
    longer = pieces_of(read(0, 8, 2), sink)
    assert first[0].place == longer[0].place
    assert first[0].name < longer[0].name
    assert Unseen(first, BatchResult).id != Unseen(longer, BatchResult).id
    sink.apply(read(0, 8, 2))
    assert held(pieces_of(read(5, 10, 3), sink)) == [(8, 10, [8, 9])], "what the table has seen is left out"
    assert pieces_of(read(2, 8, 3), sink) == ()
    assert Unseen((), BatchResult).id == ""


def test_a_range_of_which_nothing_is_left_is_a_piece_all_the_same(sink: SqliteSink) -> None:
    assert held(pieces_of(read(1, 5, 1, modulo=7), sink)) == [(0, 5, [])]
    assert pieces_of(read(1, 5, 1, modulo=7, whole=False), sink) == ()


def test_rejected_rows_are_no_part_of_a_piece(sink: SqliteSink) -> None:
    bad = pa.table(
        {
            "hub": [HUB],
            "partition": ["0"],
            "sequenceNumber": pa.array([2], pa.int64()),
            "ownerLevel": pa.array([1], pa.int64()),
            "body": [b"?"],
            "reason": ["bad"],
        }
    )
    good = read(0, 2, 1)
    assert held(pieces_of(Batch(good.rows, bad, ranges=[EventRange(HUB, "0", 1, 0, 4)]), sink)) == [(0, 4, [0, 1])]


def test_a_former_owner_cannot_move_the_watermark_under_a_piece(sink: SqliteSink) -> None:
    pieces_of(read(0, 8, 2), sink)
    late = sink.apply(read(0, 5, 1), lambda hub, partition: 2)
    assert (late.applied, len(late.refused_ranges)) == (0, 1)
    assert pieces_of(read(0, 5, 1), sink) == (), "and there is nothing new for it"


@dataclass
class Owner:
    """An instance that may stop for long between any two steps."""

    level: int
    batch: Batch
    pieces: tuple[Piece, ...] | None = None
    written: bool = False
    done: bool = False


@pytest.mark.more(but=6)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_owners_that_stop_anywhere_and_go_on_later(tmp_path: Path, seed: int, whole: bool) -> None:
    rng = Random(seed)
    sink = SqliteSink(tmp_path / "table.db", TableSpec(name="t", pipeline="p", mode="append"))
    files: dict[str, list[int]] = {}
    owners: list[Owner] = []
    end, modulo = 60, rng.choice([1, 3, 20])
    level = 0

    def start() -> None:
        nonlocal level
        level += 1
        mark = sink.watermarks(HUB).get("0")
        begin = 0 if mark is None else mark.sequence_number + 1
        back = 0 if mark is None or whole else rng.randint(0, min(3, begin))  # a checkpoint may be behind
        batch = read(begin - back, min(end, begin + rng.randint(1, 15)), level, whole=whole, modulo=modulo)
        owners.append(Owner(level, batch))

    def step(owner: Owner) -> None:
        if owner.pieces is None:
            owner.pieces = pieces_of(owner.batch, sink)
        elif not owner.written:
            files.update({one.name: one.rows["n"].to_pylist() for one in owner.pieces})
            owner.written = True
        else:
            sink.apply(owner.batch, lambda hub, partition: level)
            owner.done = True

    for _ in range(60):
        going = [owner for owner in owners if not owner.done]
        if not going or rng.random() < 0.2:
            start()
        else:
            step(rng.choice(going))
    level += 1
    mark = sink.watermarks(HUB).get("0")
    begin = 0 if mark is None else mark.sequence_number + 1
    last = Owner(level, read(begin, end, level, whole=whole, modulo=modulo))
    while not last.done:  # the last owner reads to the end
        step(last)
    for owner in owners:  # and those that stopped long ago go on
        while not owner.done:
            step(owner)
    newest = {name.split(".")[0]: rows for name, rows in sorted(files.items())}
    assert sorted(n for rows in newest.values() for n in rows) == [n for n in range(end) if n % modulo == 0]
    assert sink.row_count() == sum(map(len, newest.values()))
