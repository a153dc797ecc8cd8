"""Which tests `make test` leaves to `make more`, by their marks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

TESTS = """
import pytest

@pytest.mark.more
def test_dear():
    pass

@pytest.mark.more(but=2)
@pytest.mark.parametrize("case", "abcd")
def test_cases(case):
    pass

class Contract:
    def test_cheap(self):
        pass

    def test_slow(self):
        pass

class TestOne(Contract):
    pass

@pytest.mark.more_of("test_slow")
class TestTwo(Contract):
    pass
"""
KEPT = {"test_cases[a]", "test_cases[b]", "TestOne::test_cheap", "TestOne::test_slow", "TestTwo::test_cheap"}
LEFT = {"test_dear", "test_cases[c]", "test_cases[d]", "TestTwo::test_slow"}


def collected(folder: Path, markers: str) -> tuple[set[str], str]:
    """The tests of a run by these markers, and all that it says."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    more\n    more_of\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.more", "-m", markers, "--collect-only", "-q"],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    tests = {line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line}
    return tests, done.stdout + done.stderr


@pytest.mark.parametrize(("markers", "tests"), [("not more", KEPT), ("more", LEFT)])
def test_each_test_is_of_one_target(tmp_path: Path, markers: str, tests: set[str]) -> None:
    (tmp_path / "test_a.py").write_text(TESTS)
    assert collected(tmp_path, markers)[0] == tests


def test_a_name_that_is_no_test_of_the_class_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(TESTS.replace('"test_slow"', '"test_slaw"'))
    assert "it has no test 'test_slaw'" in collected(tmp_path, "more")[1]
