"""What tests cost: a process that a test starts counts for it, and a dear test that is not marked is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import costs
from tests.costs import DEAR, Cost
from tests.repository import ROOT

TESTS = """
import subprocess, sys, pytest
from tests.costs import DEAR

WORKS = f"import time\\nwhile time.process_time() < {DEAR + 0.2}: pass"

def test_that_is_cheap():
    pass

def test_that_starts_a_process():
    subprocess.run([sys.executable, "-c", WORKS], check=True)

@pytest.mark.more
def test_that_is_marked():
    subprocess.run([sys.executable, "-c", WORKS], check=True)
"""


@pytest.mark.more
def test_a_run_ends_with_the_table_of_what_its_tests_cost(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    timing\n    more\n")
    (tmp_path / "test_a.py").write_text(TESTS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", costs.NOTES))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.gate", "not timing", "--costs", "-n", "2", "--color=no"],
        cwd=tmp_path,
        env=environment
        | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.partition("processor time:")[2]
    assert "3 tests" in said
    table, _, unmarked = said.partition("1 tests of make test take")
    assert [line.split("::")[1] for line in table.splitlines() if "clock" in line][-1] == "test_that_is_cheap"
    assert [line.split("::")[1] for line in unmarked.splitlines()[1:]] == ["test_that_starts_a_process"]


def test_files_are_summed() -> None:
    said = costs.table([Cost("a.py::b", 2 * DEAR, 9, True), Cost("a.py::c", 1, 1, False), Cost("d.py::e", 1, 1, False)])
    assert f"{2 * DEAR + 1:8.1f} s  a.py (2)" in said
    assert "\n0 tests of make test" in said
