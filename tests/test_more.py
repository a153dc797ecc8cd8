"""Which tests `make test` leaves to `make more`, by their marks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.more import PEERS
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
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    more\n    more_of\n    peers\n")
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


@pytest.mark.parametrize(("folder", "refused"), [("peers", False), ("stores", True)])
def test_one_of_peers_is_where_its_target_looks(tmp_path: Path, folder: str, refused: bool) -> None:
    place = tmp_path / "tests" / folder
    place.mkdir(parents=True)
    (place / "test_a.py").write_text("import pytest\n\n@pytest.mark.peers\ndef test_b(): pass\n")
    said = collected(tmp_path, "peers")[1]
    assert ("make peers looks into tests/peers and tests/versions alone" in said) == refused


def test_tests_of_a_group_go_to_one_worker(tmp_path: Path) -> None:
    """In `make peers` the tests of a group share a cluster or a build."""
    (tmp_path / "test_a.py").write_text(
        "import os, pytest\nfrom pathlib import Path\n\n@pytest.mark.xdist_group('a')\n"
        "@pytest.mark.parametrize('n', range(6))\ndef test_b(n): Path(os.environ['PYTEST_XDIST_WORKER']).touch()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=True)
    assert len([*tmp_path.glob("gw*")]) == 1


def test_its_target_looks_there() -> None:
    assert f"PEERS := {' '.join(PEERS)}\n" in (ROOT / "Makefile").read_text()
