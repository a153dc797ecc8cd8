"""Runs pytest, and runs what failed once more: alone, in a fresh process, with its fixtures made anew.

Owns the exit code of `make test` and `make peers`. A test that fails and then passes is printed last, as
`flaky: NAME` with its first error, and the exit code is 0: one test that fails by chance costs nobody the whole run.
It is a defect all the same, to be mended by its cause.

Refuses a second try to more than `MOST` tests, to a file that cannot be collected, and to a run that ended early.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

MOST = 5
"""The most different tests that run once more. Where more fail, chance is not the cause."""


class FailedTests:
    """A plugin of pytest that keeps which tests failed, with the first error of each.

    Under xdist it lives in the process that hands tests to workers, and hears of a worker that died as of a failure of
    the test that ran there.
    """

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}
        self.uncollected: list[str] = []
        self.root = Path.cwd()

    def pytest_configure(self, config: pytest.Config) -> None:
        self.root = config.rootpath

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.errors.setdefault(report.nodeid, _first_line(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.uncollected.append(report.nodeid)


def run(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments. Returns the exit code: 0 where every test has passed once."""
    failed = FailedTests()
    code = int(pytest.main(list(arguments), plugins=[failed]))
    if code != pytest.ExitCode.TESTS_FAILED or failed.uncollected or not failed.errors:
        return code
    if len(failed.errors) > MOST:
        print(f"{len(failed.errors)} tests failed. At most {MOST} would have run once more.", flush=True)
        return code
    again = [name for name in failed.errors if not _passes_alone(name, failed.root)]
    for name, error in failed.errors.items():
        print(f"{'failed twice' if name in again else 'flaky'}: {name}\n    {error}", flush=True)
    return code if again else int(pytest.ExitCode.OK)


def _passes_alone(name: str, root: Path) -> bool:
    print(f"\nonce more, alone: {name}", flush=True)
    command = [sys.executable, "-m", "pytest", "-n", "0", name]
    return subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, check=False).returncode == pytest.ExitCode.OK


def _first_line(report: pytest.TestReport) -> str:
    """The line of an error that says the most: its message, where pytest knows it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(report.longrepr if crash is None else crash.message).strip().splitlines()
    return lines[0] if lines else f"in its {report.when}, without a message"


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
