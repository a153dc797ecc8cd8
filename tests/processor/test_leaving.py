"""Plain programs that mean to end, or whose output nobody reads: each as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from leasehold.config import OwnershipSettings
from leasehold.hubs.log.hub import LogHub
from leasehold.notices import Notice
from leasehold.processors.events import DeliverySettings, EventBatch, EventProcessor, PartitionContext
from leasehold.processors.events.leaving import means_to_leave
from leasehold.processors.events.oversight import Oversight
from leasehold.stores.sqlite.store import SqliteStore
from tests.processor.plain import DELIVERY, SETTINGS, Handler, await_cycles, log, send
from tests.waiting import NEVER, PATIENCE, until

PROGRAM = """
import os, sys, threading, time
from pathlib import Path
from leasehold import DeliverySettings, EventProcessor, Handlers, OwnershipSettings

folder, how = Path(sys.argv[1]), sys.argv[2]

def on_events(batch, context):
    for event in batch:
        if how.startswith("prints"):
            print("handled", context.partition, event.sequence_number, flush=how == "prints")
        if how == "hangs" and context.partition == "0":
            (folder / "inside").touch()
            while (folder / "gate").exists():
                time.sleep(0.01)
        if how == "exits" and context.partition == "0" and event.sequence_number == 3:
            sys.exit(3)
    with (folder / f"handled-{context.partition}").open("a") as handled:
        handled.write("x" * len(batch))

def on_error(error, partition):
    (folder / "complained").touch()
    if how == "exits on error":
        sys.exit(4)

def on_partition_start(context):
    if how == "exits on error":
        raise ValueError("no")
    if how == "exits at the start":
        sys.exit("enough")

processor = EventProcessor(
    f"log:///{folder}/hub.db", f"sqlite:///{folder}/store.db",
    Handlers(on_events, on_error=on_error, on_partition_start=on_partition_start),
    delivery=DeliverySettings(max_batch=1),
    ownership=OwnershipSettings(load_balancing_interval=0.5, partition_expiration=float(sys.argv[3]),
                                stall_timeout=float(sys.argv[3]), settle_delay=0.0),
)
processor.run()
print("run has returned", [thread.name for thread in threading.enumerate()])
"""


STALL = 6.5
"""Seconds after which a handler counts as hung, and others may take what its program holds."""


def said(program: subprocess.Popen[str], words: str) -> str:
    """The next line of the errors with these words."""
    assert program.stderr is not None
    return next(line for line in program.stderr if words in line)


def started(
    folder: Path, how: str, *, before: Sequence[str] = (), stderr: int = subprocess.PIPE, stall: float = NEVER
) -> subprocess.Popen[str]:
    command = [*before, sys.executable, "-c", PROGRAM, str(folder), how, str(stall)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)


def handled(folder: Path, partition: str) -> int:
    """How many events the program has handled."""
    path = folder / f"handled-{partition}"
    return path.stat().st_size if path.exists() else 0


@pytest.mark.more
@pytest.mark.parametrize(("how", "code"), [("exits", 3), ("exits on error", 4), ("exits at the start", 1)])
def test_a_function_that_calls_exit_ends_the_program_in_order(tmp_path: Path, how: str, code: int) -> None:
    """It ended nothing: the handler was called again and again, or its thread was gone."""
    log(tmp_path, partitions=2, each=10)
    program = started(tmp_path, how)
    out, errors = program.communicate(timeout=PATIENCE)
    assert program.returncode == code, errors
    assert "run has returned" not in out
    store = SqliteStore(tmp_path / "store.db")
    group = LogHub(tmp_path / "hub.db").consumer_group("$Default")
    assert {record.owner_id for record in store.list_ownership(group).records} == {""}  # relinquished, all of it
    if how == "exits":
        assert "partition 0: SystemExit: 3" in errors
        places = {one.partition: one.sequence_number for one in store.list_checkpoints(group)}
        assert places["0"] == 2
        assert "SystemExit: 3" in {r.partition: r.last_error for r in store.list_ownership(group).records}["0"]


def test_what_ends_the_program_is_not_claimed_again_while_the_end_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was, and the new claim wiped from the record what had ended the work."""
    slept: list[Oversight] = []
    shut_down = Oversight._shut_down

    def after_a_while(oversight: Oversight) -> None:
        if not slept:
            slept.append(oversight)
            await_cycles(processor.notices, 10)
        shut_down(oversight)

    monkeypatch.setattr(Oversight, "_shut_down", after_a_while)
    hub, store = log(tmp_path, partitions=1, each=10), SqliteStore(tmp_path / "store.db")

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        if batch.last >= 3:
            sys.exit(3)

    processor = EventProcessor(hub, store, on_events, ownership=SETTINGS, delivery=DeliverySettings(max_batch=1))
    with pytest.raises(SystemExit):
        processor.run()
    (record,) = store.list_ownership(hub.consumer_group("$Default")).records
    assert (record.owner_id, record.owner_level, record.last_error) == ("", 1, "SystemExit: 3")


@pytest.mark.more
@pytest.mark.parametrize("how", ["prints", "prints into a buffer"])
def test_a_program_whose_output_nobody_reads_ends(tmp_path: Path, how: str) -> None:
    """`program | head -1`: each event failed anew, for ever."""
    hub = log(tmp_path, partitions=2, each=10 if how == "prints" else 2_000)
    program = started(tmp_path, how)
    assert program.stdout is not None
    assert program.stdout.readline().startswith("handled")
    program.stdout.close()
    send(hub, 10 if how == "prints" else 2_000)
    assert program.wait(PATIENCE) == 1
    assert program.stderr is not None
    assert program.stderr.read() == "", "as any program in a pipe"
    program.stderr.close()
    store = SqliteStore(tmp_path / "store.db")
    assert {record.owner_id for record in store.list_ownership(hub.consumer_group("$Default")).records} == {""}


@pytest.mark.more
@pytest.mark.parametrize("how", ["closed", "unread"])
def test_a_program_whose_errors_nobody_reads_goes_on(tmp_path: Path, how: str) -> None:
    hub = log(tmp_path, partitions=2, each=10)
    reading, writing = os.pipe()
    closing = ["sh", "-c", 'exec "$@" 2>&-', "sh"] if how == "closed" else []
    program = started(tmp_path, "quiet", before=closing, stderr=writing)
    os.close(writing)
    os.close(reading)
    try:
        until(lambda: handled(tmp_path, "0") >= 10 <= handled(tmp_path, "1"), "what was there")
        (tmp_path / "hub.db").rename(tmp_path / "away.db")  # something to complain of
        until((tmp_path / "complained").exists, "the complaint")
        (tmp_path / "away.db").rename(tmp_path / "hub.db")
        send(hub, 5)
        until(lambda: handled(tmp_path, "0") >= 15 <= handled(tmp_path, "1"), "what came")
        assert handled(tmp_path, "0") == handled(tmp_path, "1") == 15
    finally:
        program.send_signal(signal.SIGTERM)
        out, _ = program.communicate(timeout=PATIENCE)
    assert program.returncode in (0, 120), "120: Python's own word for an error output that nobody reads"
    assert out == "run has returned ['MainThread']\n"


@pytest.mark.more
def test_a_handler_that_never_returns_is_told_of_and_the_others_go_on(tmp_path: Path) -> None:
    hub = log(tmp_path, partitions=2, each=3)
    (tmp_path / "gate").touch()
    program = started(tmp_path, "hangs", stall=STALL)
    assert program.stderr is not None
    try:
        slow = said(program, "partition 0 has not gone on for")
        assert "its handler, or the database that it waits for, has not returned" in slow
        line = said(program, "the work on partition 0 has not gone on for")
        assert f"stall_timeout is {STALL:g} s" in line
        handler, store = Handler(), SqliteStore(tmp_path / "store.db")
        with EventProcessor(hub, store, handler.on_events, ownership=other()) as two:
            until(lambda: "0" in two.partitions, "another instance to have it")
            send(hub, 5)
            until(lambda: handled(tmp_path, "1") + len(handler.got.get("1", ())) >= 8, "the other partition")
        program.send_signal(signal.SIGTERM)
        assert "kill it" in said(program, "waiting for what runs on partitions 0")
        assert program.poll() is None
        (tmp_path / "gate").unlink()
        assert program.wait(PATIENCE) == 0
    finally:
        program.kill()
        program.communicate()


def test_a_second_signal_ends_a_program_whose_handler_never_returns(tmp_path: Path) -> None:
    log(tmp_path, partitions=1, each=3)
    (tmp_path / "gate").touch()
    program = started(tmp_path, "hangs")
    assert program.stderr is not None
    try:
        until((tmp_path / "inside").exists, "the handler")
        program.send_signal(signal.SIGTERM)
        said(program, "waiting for what runs")
        program.send_signal(signal.SIGTERM)
        assert program.wait(PATIENCE) == -signal.SIGTERM
    finally:
        program.kill()
        program.communicate()


def other() -> OwnershipSettings:
    """Of a second instance, in step with the program's."""
    return OwnershipSettings(load_balancing_interval=0.5, partition_expiration=STALL, settle_delay=0.0)


def test_a_listener_that_calls_exit_costs_no_partition(tmp_path: Path) -> None:
    """In the dispatch thread, where nothing would be renewed any more."""
    hub, handler = log(tmp_path, partitions=1, each=5), Handler()
    store = SqliteStore(tmp_path / "store.db")
    processor = EventProcessor(hub, store, handler.on_events, ownership=SETTINGS, delivery=DELIVERY)
    processor.notices.subscribe(lambda notice: sys.exit(1), Notice)
    with processor:
        handler.wait(5)
        await_cycles(processor.notices, 3)
        send(hub, 5)
        handler.wait(10)


def test_what_means_to_leave() -> None:
    assert means_to_leave(SystemExit(0))
    assert means_to_leave(KeyboardInterrupt())
    assert not means_to_leave(ValueError())
    assert not means_to_leave(BrokenPipeError())  # of a database: our own output is read
