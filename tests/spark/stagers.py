"""Stagers that do what Spark, a machine or a network may do to a task that stages its rows."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from leasehold.errors import SinkUnavailable
from leasehold.sinks.base import Stager
from leasehold.sinks.batch import Batch
from leasehold.sinks.staged import StageReceipt


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
