"""Stagers that do what Spark, a machine or a network may do to a task that stages its rows."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from leasehold.errors import SinkUnavailable
from leasehold.sinks.base import Stager
from leasehold.sinks.postgres.staged import stager
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.staged import StageReceipt
from tests.waiting import take


def wrong(piece: Batch) -> Batch:
    """The same events with other values: if one of them gets into the table, it shows."""
    names = piece.rows.schema.names
    values = pa.array([-1] * piece.rows.num_rows, pa.int64())
    return replace(piece, rows=piece.rows.set_column(names.index("n"), "n", values))


@dataclass(frozen=True)
class Around:
    """What goes around the sink's own stager."""

    stager: Stager

    def close(self) -> None:
        self.stager.close()


@dataclass(frozen=True)
class Twice(Around):
    """Each task has a second attempt, which has staged all of its rows and whose receipt Spark does not take."""

    def stage(self, batch: str, task: int, pieces: Iterable[Batch]) -> StageReceipt:
        pieces = list(pieces)
        self.stager.stage(batch, task, [wrong(piece) for piece in pieces])
        return self.stager.stage(batch, task, pieces)


@dataclass(frozen=True)
class Killed(Around):
    """The first worker that has staged its rows is killed before it gives its receipt."""

    mark: Path

    def stage(self, batch: str, task: int, pieces: Iterable[Batch]) -> StageReceipt:
        pieces = list(pieces)
        try:
            self.mark.touch(exist_ok=False)
        except FileExistsError:
            return self.stager.stage(batch, task, pieces)
        self.stager.stage(batch, task, [wrong(piece) for piece in pieces])
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


@dataclass(frozen=True)
class KilledAt(Around):
    """One worker in each batch is killed at the next of these points, while it stages rows that are wrong.

    Each of them leaves a file with its point in `folder`, and another one if it was not killed there.
    """

    folder: Path
    points: Sequence[str]

    def stage(self, batch: str, task: int, pieces: Iterable[Batch]) -> StageReceipt:
        pieces = list(pieces)
        rows = sum(piece.rows.num_rows for piece in pieces)
        before = len(list(self.folder.glob("killed-*")))
        if rows and before < len(self.points) and self._is_the_one(batch, self.points[before]):
            self._die(batch, task, [wrong(piece) for piece in pieces], self.points[before])
        return self.stager.stage(batch, task, pieces)

    def _is_the_one(self, batch: str, point: str) -> bool:
        try:
            with (self.folder / f"killed-{batch}").open("x") as mark:
                mark.write(point)
        except FileExistsError:
            return False
        return True

    def _die(self, batch: str, task: int, pieces: Sequence[Batch], point: str) -> None:
        from tests.sinks.postgres_writer import at

        stager._connections.cache_clear()  # so that it connects anew
        at(point, lambda: os.kill(os.getpid(), signal.SIGKILL))
        self.stager.stage(batch, task, pieces)
        (self.folder / f"survived-{batch}").write_text(point)


def not_installed() -> Stager:
    """What an executor without the database's driver finds."""
    raise ModuleNotFoundError("No module named 'psycopg': no route to the database", name="psycopg")


@dataclass(frozen=True)
class WithoutDriver(Around):
    """No executor has what it takes to talk to the database."""

    def __reduce__(self) -> tuple[object, ...]:
        return not_installed, ()

    def stage(self, batch: str, task: int, pieces: Iterable[Batch]) -> StageReceipt:
        raise AssertionError


@dataclass(frozen=True)
class CutOff(Around):
    """No task reaches the database."""

    def stage(self, batch: str, task: int, pieces: Iterable[Batch]) -> StageReceipt:
        raise SinkUnavailable("no route to the database from here")


@dataclass(frozen=True)
class Slow(Around):
    """In each batch the first attempt of a task hangs, and what it stages is wrong.

    It hangs until the batch is merged: `before` it has staged its rows or `behind` that, and dies then, or `late`, and
    stages them then. Files in `folder` are about a batch, by its token: `slow` has which of the three, `second` is
    there when another attempt of the task begins, `merged` when the batch is in the table, `zombie` when rows were
    staged late.
    """

    folder: Path
    kinds: Sequence[str]

    def stage(self, batch: str, task: int, pieces: Iterable[Batch]) -> StageReceipt:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        pieces = list(pieces)
        if task == 0 and context.attemptNumber() == 0:
            kind = self.kinds[len(list(self.folder.glob("slow-*"))) % len(self.kinds)]
            (self.folder / f"slow-{batch}").write_text(kind)
            if kind == "behind":
                self._stage_wrong(batch, task, pieces)
            parent = os.getppid()
            while not (self.folder / f"merged-{batch}").exists():
                take(0.01)
                if os.getppid() != parent:  # the executor has ended
                    os._exit(1)
            if kind != "late":
                os._exit(1)  # so that Spark gives its core to others
            self._stage_wrong(batch, task, pieces)
            (self.folder / f"zombie-{batch}").touch()
        elif task == 0:
            (self.folder / f"second-{batch}").touch()
        return self.stager.stage(batch, task, pieces)

    def _stage_wrong(self, batch: str, task: int, pieces: Iterable[Batch]) -> None:
        self.stager.stage(batch, task, [wrong(piece) for piece in pieces])
