"""What each test costs in processor time: `make test ARGS=--costs` prints it, the dearest first.

Owns what counts: all that a worker's process and the processes below it have used, from the end of the test before to
the end of this one. So the first test of a file pays for the file's fixtures, and the first on Spark for its session;
what a session does in the background counts for the test that runs then. Servers that all workers share count for no
test. Promises that a figure hardly depends on what else the machine does, as the time on a clock would.

A process that outlives its parent, as Spark's Java does when its program is killed, would be lost to the sum with all
that it used: the worker adopts it (prctl's child subreaper), takes its end, and counts it then. A server that all
workers share, which goes its own way too, ends behind all tests. Only what was seen with another parent counts as
adopted; the end of a process that the test itself started is left to the test.

`tests.gate` has each worker write a file into the folder that `NOTES` names, a line a test. It reads Linux's /proc.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

import pytest

OPTION = "--costs"
"""What asks `tests.gate` for the table."""
NOTES = "LEASEHOLD_TEST_COSTS"
"""The variable that names the folder."""
DEAR = 2.5
"""Seconds of processor time from which on a test of `make test` is named: it belongs to `make more` where a cheaper one
keeps the same promise."""
_LISTED = 60
_LOOK = 0.3
_ADOPT_ORPHANS = 36
"""PR_SET_CHILD_SUBREAPER: prctl(2)."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """What one test took: seconds of processor time, and on the clock. `more`: `make more` runs it, not `make test`."""

    test: str
    processor: float
    clock: float
    more: bool

    @property
    def file(self) -> str:
        """The path of its file."""
        return self.test.partition("::")[0]


def note(config: pytest.Config) -> None:
    """Have this process note what its tests cost, if it runs tests and somebody asks for it."""
    if NOTES in os.environ and (hasattr(config, "workerinput") or not config.getvalue("numprocesses")):
        config.pluginmanager.register(Costs(Path(os.environ[NOTES])))


class Costs:
    """A plugin of pytest that notes what each test of this process costs."""

    def __init__(self, folder: Path) -> None:
        self._notes = folder / f"{os.getpid()}.jsonl"
        self._adopted: frozenset[int] = frozenset()
        self._spent, self._time = spent_below(os.getpid(), self._adopted), time.monotonic()
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
        self._ended = threading.Event()
        threading.Thread(target=self._end_orphans, name="ends of orphans", daemon=True).start()

    def pytest_sessionfinish(self) -> None:
        """The process has no more to note."""
        self._ended.set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run the test, and note it."""
        done = yield
        spent, now = spent_below(os.getpid(), self._adopted), time.monotonic()
        more = item.get_closest_marker("more") is not None
        # A process that ended without being waited for takes what it used out of the sum.
        note = [item.nodeid, max(0.0, spent - self._spent), now - self._time, more]
        with self._notes.open("a") as notes:
            notes.write(json.dumps(note) + "\n")
        self._spent, self._time = spent, now
        return done

    def _end_orphans(self) -> None:
        """Take the ends of processes that this one has adopted, until its tests are over."""
        others: set[int] = set()
        while not self._ended.wait(_LOOK):
            seen = processes()
            others |= {number for number, process in seen.items() if process.parent != os.getpid()}
            others &= seen.keys()
            self._adopted = frozenset(number for number in others if seen[number].parent == os.getpid())
            for number in self._adopted:
                if seen[number].ended:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(number, os.WNOHANG)


@dataclass(frozen=True)
class Process:
    """What the system says of one process. `seconds`: of processor time, its own and of children whose end it took."""

    parent: int
    ended: bool
    seconds: float


def processes() -> dict[int, Process]:
    """All processes by their ids."""
    seen = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                fields = (each / "stat").read_text().rpartition(")")[2].split()
                seconds = sum(int(ticks) for ticks in fields[11:15]) / _TICKS
                seen[int(each.name)] = Process(int(fields[1]), fields[0] == "Z", seconds)
    return seen


def spent_below(root: int, adopted: Set[int]) -> float:
    """Seconds of processor time that process `root` and all below it have used, with those that have ended.

    Those that it has adopted, and what is below them, count when they have ended.
    """
    below: dict[int, list[int]] = defaultdict(list)
    seen = processes()
    for number, process in seen.items():
        below[process.parent].append(number)
    todo, total = [root], 0.0
    while todo:
        number = todo.pop()
        total += seen[number].seconds if number in seen else 0.0
        todo += below[number] if number != root else (child for child in below[root] if child not in adopted)
    return total


def read(folder: Path) -> list[Cost]:
    """The costs that workers have noted in `folder`, the dearest first."""
    lines = [line for notes in folder.glob("*.jsonl") for line in notes.read_text().splitlines()]
    return sorted((Cost(*json.loads(line)) for line in lines), key=lambda cost: -cost.processor)


def table(costs: list[Cost]) -> str:
    """The dearest files and tests, and those that are dear and not marked `more`."""
    files: dict[str, list[Cost]] = defaultdict(list)
    for cost in costs:
        files[cost.file].append(cost)
    sums = sorted(((_sum(of_file), path, len(of_file)) for path, of_file in files.items()), reverse=True)
    unmarked = [cost for cost in costs if not cost.more and cost.processor >= DEAR]
    lines = [
        f"processor time: {_sum(costs):.0f} s in {len(costs)} tests",
        *(f"{seconds:8.1f} s  {path} ({tests})" for seconds, path, tests in sums[:_LISTED]),
        "",
        *(f"{cost.processor:8.1f} s  {cost.clock:6.1f} s on the clock  {cost.test}" for cost in costs[:_LISTED]),
        "",
        f"{len(unmarked)} tests of make test take {DEAR} s or more. Mark one `more` where a cheaper keeps its promise:",
        *(f"{cost.processor:8.1f} s  {cost.test}" for cost in unmarked),
    ]
    return "\n".join(lines)


def _sum(costs: list[Cost]) -> float:
    return sum(cost.processor for cost in costs)
