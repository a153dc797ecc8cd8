"""A reset beside an instance that was stopped in the middle of a batch, and a reset that is killed: at every line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from leasehold.errors import EventsMissing, LeaseholdError, SinkUnavailable, UsageError
from leasehold.hubs.log.hub import LogHub
from leasehold.model import EARLIEST, LATEST, OTHERS, Checkpoint, Event, EventPosition, EventRange, Ownership
from leasehold.operations.resetting import Moved, reset_group
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold.store_choice import Stores
from leasehold.stores.base import PipelineBinding
from leasehold.stores.memory.store import MemoryStore
from leasehold.stores.sqlite.store import SqliteStore
from tests.processor.fleet import GROUP, Hub
from tests.repository import ROOT
from tests.sinks.events import E, batch, look, run, sink
from tests.waiting import PATIENCE, until

END = 30


def events(begin: int, end: int, level: int, *, ranges: bool) -> Batch:
    made = batch([E(str(number), number=number, level=level, hub="hub") for number in range(begin, end)])
    return Batch(made.rows, ranges=[EventRange("hub", "0", level, begin, end)] if ranges else None)


class Owner:
    """An instance by hand: it claims partition 0, and reads, applies and checkpoints ranges of it."""

    def __init__(self, store: Any, path: Path, *, ranges: bool) -> None:
        self.store, self.ranges = store, ranges
        self.table = sink(path, "append")
        record = next(iter(store.list_ownership(GROUP).records), None)
        checkpoint = next(iter(store.list_checkpoints(GROUP)), None)
        self.level = 1 + max(record.owner_level if record else 0, checkpoint.owner_level if checkpoint else 0)
        (self.record,) = store.claim_ownership(
            [Ownership(GROUP, "0", f"a/{self.level}", self.level, record.etag if record else None)]
        )
        (standing,) = store.raise_owner_level([Checkpoint(GROUP, "0", -1, self.level)])
        self.at = standing.next_sequence_number

    def level_of(self, hub: str, partition: str) -> int:
        (record,) = self.store.list_ownership(GROUP).records
        return int(record.owner_level)

    def read(self, end: int) -> Batch:
        """The next events, in memory."""
        begin, self.at = self.at, max(end, self.at)
        return events(begin, self.at, self.level, ranges=self.ranges)

    def write(self, some: Batch) -> None:
        self.table.apply(some, self.level_of)
        self.store.update_checkpoints([Checkpoint(GROUP, "0", self.at - 1, self.level)])

    def end(self) -> None:
        self.store.relinquish_ownership([self.record])


class Traced:
    """Calls something before the n-th call of any method that a reset makes of what is behind it."""

    def __init__(self, behind: Any, calls: list[str], at: int, then: Callable[[], None]) -> None:
        self._behind, self._calls, self._at, self._then = behind, calls, at, then

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._behind, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **settings: Any) -> Any:
            self._calls.append(name)
            if len(self._calls) == self._at:
                self._then()
            return found(*arguments, **settings)

        return call


def reset(store: Any, table: Any, to: EventPosition | None) -> list[Moved]:
    hub = Hub(1)
    hub.ends["0"] = END
    everywhere = None if to is None else {OTHERS: to}
    return reset_group(hub, GROUP, Stores(store, store), table, PipelineBinding("p", "s"), to=everywhere, expiration=30)


def rows(path: Path) -> list[int]:
    return [int(row[0]) for row in look(path)]


CALLS = 14  # more than a reset makes: at the last ones nothing comes between


@pytest.mark.more(but=26)
@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("to", [None, LATEST, EARLIEST], ids=str)
@pytest.mark.parametrize("at", range(1, CALLS + 1))
def test_an_instance_that_goes_on_writing_at_any_line(
    tmp_path: Path, at: int, to: EventPosition | None, ranges: bool
) -> None:
    """It was given up for dead: its ownership is gone, its batch is in memory, and it writes at the worst moment."""
    store, path = MemoryStore(), tmp_path / "t.db"
    stalled = Owner(store, path, ranges=ranges)
    stalled.write(stalled.read(10))
    late = stalled.read(20)
    stalled.end()
    if to == EARLIEST:
        run(path, "DELETE FROM flights")
    calls: list[str] = []
    traced, table = (Traced(one, calls, at, lambda: stalled.write(late)) for one in (store, sink(path, "append")))
    is_done = True
    try:
        reset(traced, table, to)
    except UsageError as error:  # it had written into the emptied table
        is_done = False
        if to != EARLIEST or "would append them twice" not in str(error):
            raise
    if len(calls) < at:
        stalled.write(late)  # after it all
    following = Owner(store, path, ranges=ranges)
    following.write(following.read(END))
    expected = list(range(END))
    if to == LATEST:
        expected = list(range(rows(path)[-1] + 1))
        assert rows(path)[-1] in (9, 19)
    elif not is_done:
        expected = list(range(10, END))  # what was deleted by hand was not asked for again
    assert rows(path) == expected


class Died(Exception):
    """The reset was killed."""


def die() -> None:
    raise Died


@pytest.mark.more(but=14)
@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("to", [None, LATEST, EARLIEST, EventPosition.parse("15")], ids=str)
@pytest.mark.parametrize("at", range(1, CALLS + 1))
def test_a_reset_that_is_killed_at_any_line(tmp_path: Path, at: int, to: EventPosition | None, ranges: bool) -> None:
    """Work goes on exactly, or is refused, and the same reset can be run again."""
    for again in (False, True):
        store, path = MemoryStore(), tmp_path / f"{again}.db"
        owner = Owner(store, path, ranges=ranges)
        owner.write(owner.read(20))
        owner.end()
        emptied = to in (EARLIEST, EventPosition.parse("15"))
        if emptied:
            run(path, "DELETE FROM flights")
        calls: list[str] = []
        traced, table = (Traced(one, calls, at, die) for one in (store, sink(path, "append")))
        died = False
        try:
            reset(traced, table, to)
        except Died:
            died = True
        start = {None: 20, LATEST: END, EARLIEST: 0, EventPosition.parse("15"): 15}[to]
        if died and again:
            left = store.list_ownership(GROUP)  # which expires
            store.relinquish_ownership(left.records)
            store.withdraw_presence(GROUP, [one.owner_id for one in left.presences])
            assert reset(store, sink(path, "append"), to) is not None
        following = Owner(store, path, ranges=ranges)
        kept = [] if emptied else list(range(20))
        try:
            following.write(following.read(END))
        except EventsMissing:
            assert died
            assert not again
            assert to == LATEST
            continue
        done = [*kept, *range(start, END)]
        as_before = [*kept, *range(20, END)]
        assert rows(path) == done if again or not died else rows(path) in (done, as_before)


def test_a_former_owner_is_fenced_where_the_table_knew_nothing_of_the_partition(tmp_path: Path) -> None:
    """All events of its first batch were filtered, or it has just begun."""
    store, path = MemoryStore(), tmp_path / "t.db"
    stalled = Owner(store, path, ranges=False)
    stalled.table.check(batch([]).rows.schema)
    late = stalled.read(10)
    stalled.end()
    assert reset(store, sink(path, "append"), None) == [Moved("0", 0, 0)]
    stalled.write(late)
    assert rows(path) == []
    assert reset(store, sink(path, "append"), None) == [Moved("0", 0, 0)]
    assert store.list_checkpoints(GROUP)[0].sequence_number == -1


def test_a_refused_position_changes_nothing(tmp_path: Path) -> None:
    store, path = MemoryStore(), tmp_path / "t.db"
    owner = Owner(store, path, ranges=True)
    owner.write(owner.read(20))
    owner.end()
    before = store.list_ownership(GROUP).records, store.list_checkpoints(GROUP)
    with pytest.raises(LeaseholdError, match="beyond"):
        reset(store, sink(path, "append"), EventPosition.parse("31"))
    assert (store.list_ownership(GROUP).records, store.list_checkpoints(GROUP)) == before
    with pytest.raises(UsageError, match="would append them twice"):
        reset(store, sink(path, "append"), EARLIEST)
    assert [one.sequence_number for one in store.list_checkpoints(GROUP)] == [19]
    assert sink(path, "append").watermarks("hub")["0"].sequence_number == 19


# Two processes

WORKER = """
import sys
from pathlib import Path
from tests.processor.test_reset_beside import stall
stall(Path(sys.argv[1]), sys.argv[2])
"""
LOG_END = 150


def opened(folder: Path) -> tuple[Any, SqliteStore, SqliteSink]:
    store = SqliteStore(folder / "stores.db")
    return LogHub(folder / "hub.db"), store, sink(folder / "table.db", "append", timeout=PATIENCE)


def of_log(hub: Any, begin: int, end: int, level: int) -> Batch:
    made = batch([E(str(number), number=number, level=level, hub=hub.identity) for number in range(begin, end)])
    return Batch(made.rows, ranges=[EventRange(hub.identity, "0", level, begin, end)])


def stall(folder: Path, where: str) -> None:
    """Apply a first batch, and stop this process before the transaction of the second one, or in the middle of it."""
    hub, store, table = opened(folder)
    group = hub.consumer_group("$Default")
    store.claim_ownership([Ownership(group, "0", "stalled/1", 1)])
    store.raise_owner_level([Checkpoint(group, "0", -1, 1)])
    table.apply(of_log(hub, 0, 50, 1))
    store.update_checkpoints([Checkpoint(group, "0", 49, 1)])

    def stop(*arguments: object) -> None:
        print("stopped", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)

    from leasehold.sinks.beside import watermarks

    if where == "before":
        stop()
    else:
        write = watermarks.write

        def after(session: Any, marks: Any) -> None:
            write(session, marks)
            if any(mark.sequence_number == 99 for mark in marks.values()):
                stop()  # all is written, and not committed

        watermarks.write = after
    result = table.apply(of_log(hub, 50, 100, 1), lambda name, partition: 9)
    refused = store.update_checkpoints([Checkpoint(group, "0", 99, 1)])
    print(f"applied {result.applied}, refused {result.refused}, checkpoints refused {len(refused)}", flush=True)


def when_expired(attempt: Callable[[], Any]) -> Any:
    """What comes of an attempt, once nobody is there any more."""
    results: list[Any] = []

    def attempted() -> bool:
        try:
            results.append(attempt())
        except UsageError as error:
            if "in use by" not in str(error):
                raise
        return bool(results)

    until(attempted, "the group to be in use by nobody")
    return results[0]


@pytest.mark.more
@pytest.mark.parametrize("where", ["before", "amid"])
def test_a_reset_beside_a_stopped_process(tmp_path: Path, where: str) -> None:
    LogHub.create(tmp_path / "hub.db", partitions=1).close()
    hub, store, table = opened(tmp_path)
    hub.send([Event(b"x")] * LOG_END, partition="0")
    group = hub.consumer_group("$Default")
    stalled = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path), where], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert stalled.stdout is not None
    try:
        assert stalled.stdout.readline() == "stopped\n"
        # It says so before it stops: told to go on before that, it would stop for good.
        status = psutil.Process(stalled.pid).status
        until(lambda: status() == psutil.STATUS_STOPPED, "the process to stop")

        def to_sink(table: SqliteSink = table) -> list[Moved]:
            binding = PipelineBinding("p", "s")
            stores, expiration = Stores(store, store), 0.2  # expires: awaited
            return reset_group(hub, group, stores, table, binding, to=None, expiration=expiration)

        if where == "amid":
            impatient = sink(tmp_path / "table.db", "append", timeout=0.5)  # impatient: it is locked for good
            with pytest.raises(SinkUnavailable):
                when_expired(lambda: to_sink(impatient))
            assert [one.sequence_number for one in store.list_checkpoints(group)] == [49]
        else:
            assert when_expired(to_sink) == [Moved("0", 50, 50)]
        stalled.send_signal(signal.SIGCONT)
        said = stalled.stdout.readline()
        assert stalled.wait(timeout=PATIENCE) == 0
    finally:
        stalled.kill()
        stalled.wait()
        stalled.stdout.close()
    if where == "amid":
        assert said.startswith("applied 50, refused 0")
        assert when_expired(to_sink) == [Moved("0", 100, 100)]  # the first try had come to nothing
    else:
        assert said == "applied 0, refused 50, checkpoints refused 1\n"
    (checkpoint,) = store.list_checkpoints(group)
    assert table.watermarks(hub.identity)["0"] == Watermark(checkpoint.sequence_number, checkpoint.owner_level, True)
    table.apply(of_log(hub, checkpoint.next_sequence_number, LOG_END, checkpoint.owner_level + 1))
    assert rows(tmp_path / "table.db") == list(range(LOG_END))
    hub.close()
