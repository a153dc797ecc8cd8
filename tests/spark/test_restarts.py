"""What a run does after each failure of its query: goes on, forgets its scratch folder, or gives up."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from leasehold.errors import AlreadyInUse
from leasehold.hubs.log import LogHub
from leasehold.spark.failures import Failure, Kind
from leasehold.spark.pipeline import ATTEMPTS, PipelineFailed, PipelineRun
from leasehold.spark.pipeline_file import read_pipeline_file
from leasehold.spark.scratch import Scratch


class Source:
    """A reader of which only what the next query is told counts."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def option(self, name: str, value: str) -> None:
        self.told.append((name, value))


class Run(PipelineRun):
    """A run whose queries fail as told: each with a failure, and whether a batch was applied before it."""

    def __init__(self, failures: Iterable[tuple[Failure, bool]]) -> None:
        self._failures_to_come = iter(failures)
        self._restarts = self._failures = 0
        self._available_now = self._ever_applied = False
        self.source = Source()
        self.cleared = 0
        self.stop = threading.Event()
        self.stop.wait = lambda timeout=None: False  # type: ignore[method-assign]
        self._rng = Random(1)
        self._report = lambda progress: None

    def _start(self, *args: Any) -> Any:
        return None

    def _wait(self, *args: Any) -> Failure | None:
        failure, self._applied = next(self._failures_to_come, (None, True))
        self._ever_applied |= self._applied
        return failure

    def _progress(self, note: str = "") -> Any:
        return None

    def go(self, tmp_path: Path) -> Run:
        run = self

        class Counted(Scratch):
            def clear(self) -> None:
                run.cleared += 1

        self._keep_running(self.source, None, Counted(tmp_path, "me"), self.stop)  # type: ignore[arg-type]
        return self


def unknown(batch: str) -> Failure:
    return Failure(Kind.UNKNOWN, "odd", batch)


AWAY = Failure(Kind.TRANSIENT, "away", "partition 0 [0, 3)")
LOST = Failure(Kind.LOST, "gone", "partition 0 [0, 3)")


def test_a_batch_that_keeps_failing_stops_it_also_when_it_grows(tmp_path: Path) -> None:
    # As it does under a live producer, once the scratch folder is cleared and the batch planned anew.
    run = Run((unknown(f"partition 0 [0, {3 + n})"), False) for n in range(100))
    with pytest.raises(PipelineFailed, match=r"odd \(batch: partition 0 \[0, 6\)\)"):
        run.go(tmp_path)
    assert run._restarts == ATTEMPTS - 1
    assert run.source.told == [("lastError", "odd")] * run._restarts


def test_failures_far_apart_and_those_that_pass_do_not_add_up(tmp_path: Path) -> None:
    now_and_then = [(unknown(f"partition 0 [{n}, {n + 3})"), True) for n in range(10)]
    waited_out = [(AWAY, False)] * 10
    assert Run([*now_and_then, *waited_out, (unknown(AWAY.batch), True)]).go(tmp_path)._restarts == 21


def test_a_loss_counts_only_without_an_old_batch(tmp_path: Path) -> None:
    # What is replayed may long have been worked on by others, and then removed by retention.
    run = Run([(LOST, False), (LOST, True)]).go(tmp_path)
    assert (run._restarts, run.cleared) == (2, 2)
    run = Run([(LOST, False), (LOST, False)])
    with pytest.raises(PipelineFailed, match="gone"):
        run.go(tmp_path)


def test_a_group_tied_to_another_table_while_this_one_started_is_noticed(tmp_path: Path) -> None:
    """Both instances found a group in which nobody had read, and the later one tied it to its own table."""
    LogHub.create(tmp_path / "hub.db", partitions=1)
    runs = []
    for number in (1, 2):
        path = tmp_path / f"{number}.toml"
        path.write_text(
            'name = "p"\n[source]\nhub = "log:///hub.db"\n[ownership]\nstore = "sqlite:///stores.db"\n'
            f'[sink]\nurl = "sqlite:///table{number}.db"\ntable = "t"\nmode = "append"\n'
        )
        runs.append(PipelineRun(read_pipeline_file(path)))
    first, second = runs
    first._check_start()
    second._check_start()
    second._confirm_binding()
    with pytest.raises(AlreadyInUse, match="was tied to another table of pipeline 'p'"):
        first._confirm_binding()


def test_a_run_that_has_worked_goes_on_beside_a_batch_that_keeps_failing(tmp_path: Path) -> None:
    """Its partition is a suspect by then, and tried later and later; with AvailableNow there is an end to come to."""
    poison = [(unknown("partition 0 [0, 3)"), True), *[(unknown("partition 0 [0, 3)"), False)] * 20]
    assert Run(poison).go(tmp_path)._restarts == 21
    run = Run(poison)
    run._available_now = True
    with pytest.raises(PipelineFailed, match="odd"):
        run.go(tmp_path)
