"""What failed runs once more: what passes then is flaky, what fails again is a failure, and so are too many.

Tests that measure time run alone, after all others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

PASSES = "def test_that_passes(): pass\n"
FAILS = "def test_that_fails(): raise ValueError('it is broken')\n"
FAILS_ONCE = """
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def number():
    made = Path("made")
    made.write_text(made.read_text() + "x" if made.exists() else "x")
    return len(made.read_text())

def test_that_fails_once(number):
    assert number > 1, "the first time"
"""
SKIPS_LATER = """
from pathlib import Path
import pytest

def test_that_fails_and_is_skipped():
    if Path("failed").exists():
        pytest.skip("its server is not there")
    Path("failed").touch()
    raise ValueError("it is broken")
"""
DIES_ONCE = """
import os
from pathlib import Path

def test_whose_worker_dies():
    if not Path("died").exists():
        Path("died").touch()
        os._exit(3)
"""
FAILS_TIMED = """
import pytest

@pytest.mark.timing
def test_that_measures():
    raise ValueError("too late")
"""
TIMED = """
import os, pytest
from pathlib import Path

@pytest.mark.timing
def test_that_measures():
    assert os.environ["PYTEST_XDIST_WORKER_COUNT"] == "1"
    assert Path("done").exists()

def test_that_does_not():
    assert os.environ["PYTEST_XDIST_WORKER_COUNT"] == "2"
    Path("done").touch()

@pytest.mark.slow
def test_of_another_kind():
    raise AssertionError
"""


@pytest.fixture
def outcome(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[int, str]:
    """The exit code and the output of a run over the files that the test's parameter has."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    timing\n    slow\n")
    for name, text in request.param.items():
        (tmp_path / name).write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.gate", "not slow", "-n", "2", "-p", "no:cacheprovider", "--color=no"],
        cwd=tmp_path,
        env=environment
        | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.more
@pytest.mark.parametrize("outcome", [{"test_a.py": TIMED}], indirect=True)
def test_what_measures_time_runs_alone_after_all_others(outcome: tuple[int, str]) -> None:
    code, output = outcome
    assert code == 0, output
    assert output.count("1 passed") == 2
    assert "alone:" not in output


@pytest.mark.more
@pytest.mark.parametrize(
    "outcome", [{"test_a.py": PASSES + FAILS, "test_b.py": FAILS_ONCE, "test_c.py": FAILS_TIMED}], indirect=True
)
def test_what_fails_again_is_a_failure(outcome: tuple[int, str]) -> None:
    code, output = outcome
    assert code == 1
    assert "failed twice: test_a.py::test_that_fails\n    ValueError: it is broken\n" in output
    assert "failed twice: test_c.py::test_that_measures\n    ValueError: too late\n" in output
    assert "flaky: test_b.py::test_that_fails_once\n" in output


@pytest.mark.more
@pytest.mark.more
@pytest.mark.parametrize("outcome", [{"test_a.py": PASSES + SKIPS_LATER}], indirect=True)
def test_what_is_skipped_the_second_time_has_not_passed(outcome: tuple[int, str]) -> None:
    code, output = outcome
    assert code == 1
    assert "failed twice: test_a.py::test_that_fails_and_is_skipped\n    ValueError: it is broken\n" in output


@pytest.mark.parametrize("outcome", [{"test_a.py": PASSES, "test_b.py": FAILS_ONCE}], indirect=True)
def test_what_fails_once_is_flaky_and_runs_with_new_fixtures(outcome: tuple[int, str]) -> None:
    code, output = outcome
    assert code == 0
    assert output.rstrip().splitlines()[-2:] == [
        "flaky: test_b.py::test_that_fails_once",
        "    AssertionError: the first time",
    ]


@pytest.mark.more
@pytest.mark.parametrize(
    "outcome", [{f"test_{one}.py": FAILS_ONCE.replace("made", f"made_{one}") for one in range(6)}], indirect=True
)
def test_six_failures_are_not_tried_again(outcome: tuple[int, str]) -> None:
    code, output = outcome
    assert code == 1
    assert "6 tests failed. At most 5 would have run once more." in output
    assert "alone:" not in output


@pytest.mark.more
@pytest.mark.parametrize("outcome", [{"test_a.py": FAILS_ONCE, "test_b.py": "import no_such_module\n"}], indirect=True)
def test_a_file_that_cannot_be_imported_is_a_failure_at_once(outcome: tuple[int, str]) -> None:
    code, output = outcome
    assert code != 0
    assert "no_such_module" in output
    assert "alone:" not in output


@pytest.mark.more
@pytest.mark.parametrize("outcome", [{"test_a.py": DIES_ONCE + PASSES}], indirect=True)
def test_a_worker_that_dies_counts_as_its_tests_failure(outcome: tuple[int, str]) -> None:
    code, output = outcome
    assert code == 0
    assert "flaky: test_a.py::test_whose_worker_dies\n" in output
    assert "crashed" in output.rstrip().splitlines()[-1]
