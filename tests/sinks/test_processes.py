"""Real processes that apply the same batches to one file at once, and are killed in the middle of it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.sinks.events import E, Model, batch, look, look_rejected, sink

ROOT = Path(__file__).parents[2]
PARTITIONS = 3
NUMBERS = 240
WIDTH = 12

WORKER = """
import sys
from pathlib import Path
from tests.sinks.test_processes import apply_all
apply_all(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
"""


def event(partition: int, number: int) -> E:
    status = "bad" if number % 17 == 3 else f"{number}"
    gone = number % 11 == 5
    return E(f"{partition}-{number % 7}", status, None, str(partition), number, gone=gone)


def apply_all(path: Path, mode: str, level: int) -> None:
    """What each process does: all batches from the start, since it knows nothing of the others."""
    table = sink(path, mode, timeout=30.0)
    for first in range(0, NUMBERS, WIDTH):
        events = [event(p, n)._replace(level=level) for p in range(PARTITIONS) for n in range(first, first + WIDTH)]
        table.apply(batch(events, deletes=mode == "upsert"))
        print(first, flush=True)


def start(path: Path, mode: str, level: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WORKER, str(path), mode, str(level)]
    return subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def expected(mode: str) -> Model:
    model = Model(append=mode == "append", deletes=mode == "upsert")
    for first in range(0, NUMBERS, WIDTH):
        model.apply([event(p, n) for p in range(PARTITIONS) for n in range(first, first + WIDTH)])
    return model


def check(path: Path, mode: str) -> None:
    model = expected(mode)
    assert sorted(look(path), key=repr) == sorted(model.rows.values(), key=repr)
    assert sorted(look_rejected(path)) == sorted(model.rejected)
    if mode == "append":
        assert [row for row in look(path) if row[0].startswith("0-")] == [
            row for row in model.rows.values() if row[0].startswith("0-")
        ]


def test_processes_that_apply_the_same_batches_at_once(tmp_path: Path) -> None:
    for mode in ("append", "upsert"):
        path = tmp_path / f"{mode}.db"
        sink(path, mode, made=True).close()
        both = [start(path, mode, 1) for _ in range(2)]
        for process in both:
            process.communicate(timeout=60)
            assert process.returncode == 0
        check(path, mode)


def test_processes_that_are_killed_in_mid_transaction(tmp_path: Path) -> None:
    """Each new owner comes with a higher level and starts from the beginning; each but the last is killed."""
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    path = tmp_path / "t.db"
    sink(path, "append", made=True).close()
    for level in range(1, 6):
        process = start(path, "append", level)
        assert process.stdout is not None
        process.stdout.readline()  # it is at work now
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        number = sink(path, "append").watermarks("h")["0"].sequence_number
        assert (number + 1) % WIDTH == 0, f"half a batch, seed {seed}"
    process = start(path, "append", 9)
    process.communicate(timeout=60)
    assert process.returncode == 0
    check(path, "append")


def test_a_process_that_is_stopped_inside_its_transaction_has_written_nothing(tmp_path: Path) -> None:
    """A trigger tells when the rows are written; the process is killed before it can commit."""
    path = tmp_path / "t.db"
    code = """
import os, sys
from pathlib import Path
from tests.sinks.events import E, batch, sink
from leasehold.sinks import bookkeeping
def stop(*arguments):
    print("written, not committed", flush=True)
    os.kill(os.getpid(), 9)
bookkeeping.remember_keys = stop
sink(Path(sys.argv[1])).apply(batch([E("a"), E("b", number=1)]))
"""
    sink(path).apply(batch([E("a", "before", partition="0", number=0)]))
    ran = subprocess.run(
        [sys.executable, "-c", code.replace('E("a"), E("b", number=1)', 'E("a", "lost", number=1)'), str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout) == (-9, "written, not committed\n"), ran.stderr
    assert look(path) == [("a", "before", None)]
    assert sink(path).apply(batch([E("a", "again", number=1)])).applied == 1
