"""Wheel and source distribution: built, checked, and the wheel alone in an environment that has nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.cli.app import COMMANDS
from tests.repository import ROOT
from tests.tutorial import LAST_QUICK, blocks, run

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


def called(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, as `make dist` makes them."""
    folder = tmp_path_factory.mktemp("dist")
    called(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def programs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs of a fresh environment are, into which the wheel was installed, with Spark and a Java."""
    folder = tmp_path_factory.mktemp("fresh")
    called(sys.executable, "-m", "venv", folder, cwd=folder)
    [wheel] = built.glob("*.whl")
    called(folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}[spark,java]", cwd=folder)
    return folder / "bin"


def test_wheel_and_source_pass_the_checks_of_an_index(built: Path) -> None:
    files = sorted(built.iterdir())
    assert [file.suffix for file in files] == [".whl", ".gz"]
    said = called(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=built)
    assert said.count("PASSED") == 2


def test_the_wheel_alone_explains_its_commands(programs: Path, tmp_path: Path) -> None:
    said = called(programs / "leasehold", "--help", cwd=tmp_path)
    assert [name for name in COMMANDS if name not in said] == []


def test_the_wheel_alone_makes_a_table_of_a_file(programs: Path, tmp_path: Path) -> None:
    run([block for block in blocks() if block.section <= LAST_QUICK], tmp_path, programs)
