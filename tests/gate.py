"""Runs the tests of `make test`, `make more` and `make peers`: in parallel, then what measures time, then what failed.

    python -m tests.gate MARKERS [--costs] [ARGUMENTS OF PYTEST …]

Owns the exit code. A test runs in one of two parts: those marked `timing` alone, one after the other, when all others
are done, unless the markers leave them out; all others in `WORKERS` processes, or in as many as `-n` says. What failed
in either runs once more: alone, in a fresh process, with its fixtures made anew. What passes then is printed last, as
`flaky: NAME` with its first error, and the exit code is 0: one test that fails by chance costs nobody the whole run. It
is a defect all the same, to be mended by its cause. `--costs` prints what tests have taken of the processors.

Refuses a second try to more than `MOST` tests, to a file that cannot be collected, and to a part that ended early.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import costs

MOST = 5
"""The most different tests that run once more. Where more fail, chance is not the cause."""
WORKERS = "5"
"""Many tests wait for Java to start, or for another process: with three workers 2 cores were busy 0.6 of the time."""
SLOWEST = ("--durations=20", "--durations-min=5")
"""The slowest twenty are listed, so that it is seen where the time goes."""
_OK, _FAILED, _NO_TESTS = (
    int(code) for code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
)
_NOTES = "LEASEHOLD_FAILED_TESTS"
"""The variable that names the file in which a run of pytest notes what failed."""


@dataclass(frozen=True)
class Outcomes:
    """What a run came to: the first error of each test that failed, and how many tests passed."""

    errors: dict[str, str]
    passed: int


class FailedTests:
    """A plugin of pytest that notes which tests failed, with the first error of each.

    Under xdist it lives in the process that hands tests to workers, and hears of a worker that died as of a failure of
    the test that ran there.
    """

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._errors: dict[str, str] = {}
        self._passed = 0
        self._uncollected = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed += report.passed and report.when == "call"
        if report.failed:
            name = re.sub(r"@[^@\]:]+$", "", report.nodeid)  # xdist appends the group that a test belongs to
            self._errors.setdefault(name, _first_line(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._uncollected |= report.failed

    def pytest_sessionfinish(self) -> None:
        if not self._uncollected:
            self._notes.write_text(json.dumps([self._errors, self._passed]))


def pytest_configure(config: pytest.Config) -> None:
    """This module is the plugin: for failures in the process that a part begins with, for costs in its workers."""
    costs.note(config)
    if _NOTES in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailedTests(Path(os.environ.pop(_NOTES))))


def main(markers: str, arguments: Sequence[str]) -> int:
    """Run both parts, and print what tests cost where that is asked for. Returns the exit code."""
    if costs.OPTION not in arguments:
        return run(markers, arguments)
    with tempfile.TemporaryDirectory() as notes:
        os.environ[costs.NOTES] = notes
        code = run(markers, [each for each in arguments if each != costs.OPTION])
        print(costs.table(costs.read(Path(notes))), flush=True)
    return code


def run(markers: str, arguments: Sequence[str]) -> int:
    """Run both parts. Returns the exit code: 0 where every test has passed once."""
    errors: dict[str, str] = {}
    codes = set()
    parts = [["-m", f"({markers}) and not timing", "-n", WORKERS, *SLOWEST, *arguments]]
    if "not timing" not in markers:
        timed = _that_measure_time(arguments)
        parts.append(["-m", f"({markers}) and timing", *arguments, "-n", "1", *timed])
    for part in parts:
        code, outcomes = _pytest(part)
        codes.add(code)
        if outcomes is None or code not in (_OK, _FAILED, _NO_TESTS) or (code == _FAILED and not outcomes.errors):
            return code or int(pytest.ExitCode.INTERNAL_ERROR)
        errors.update(outcomes.errors)
    return _once_more(errors) if codes != {_NO_TESTS} else _NO_TESTS


def _that_measure_time(arguments: Sequence[str]) -> list[str]:
    """The files to look into for tests that measure time, unless the arguments say where: to collect all takes long."""
    if any(Path(each.partition("::")[0]).exists() for each in arguments):
        return []
    folders = [folder for folder in map(Path, ("tests", "testkit/tests")) if folder.is_dir()] or [Path()]
    files = (path for folder in folders for path in folder.rglob("test_*.py"))
    return sorted(str(path) for path in files if "mark.timing" in path.read_text())


def _once_more(errors: dict[str, str]) -> int:
    if len(errors) > MOST:
        print(f"{len(errors)} tests failed. At most {MOST} would have run once more.", flush=True)
        return _FAILED
    again = []
    for name in errors:
        print(f"\nonce more, alone: {name}", flush=True)
        code, outcomes = _pytest(["-n", "0", name])
        if code != _OK or outcomes is None or not outcomes.passed:  # one that is skipped now has not passed
            again.append(name)
    for name, error in errors.items():
        print(f"{'failed twice' if name in again else 'flaky'}: {name}\n    {error}", flush=True)
    return _FAILED if again else _OK


def _pytest(arguments: Sequence[str]) -> tuple[int, Outcomes | None]:
    """The exit code of a run of pytest, and what it noted if it could collect all and came to its end."""
    with tempfile.TemporaryDirectory() as kept:
        notes = Path(kept, "failed.json")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.gate", *arguments],
            env={**os.environ, _NOTES: str(notes)},
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode, Outcomes(*json.loads(notes.read_text())) if notes.exists() else None


def _first_line(report: pytest.TestReport) -> str:
    """The line of an error that says the most: its message, where pytest knows it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(report.longrepr if crash is None else crash.message).strip().splitlines()
    return lines[0] if lines else f"in its {report.when}, without a message"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
