"""Wheels and source distributions of Leasehold and its test kit: built, checked, and in fresh environments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.cli.app import COMMANDS
from tests.repository import ROOT
from tests.tutorial import FILES, KILLING, SERVERS, blocks, run

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


def called(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all four, as `make dist` makes them."""
    folder = tmp_path_factory.mktemp("dist")
    for project in (ROOT, ROOT / "testkit"):
        called(sys.executable, "-m", "build", "--outdir", folder, project, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def programs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs of a fresh environment are, into which the wheel was installed, with Spark and a Java."""
    folder = tmp_path_factory.mktemp("fresh")
    called(sys.executable, "-m", "venv", folder, cwd=folder)
    [wheel] = built.glob("leasehold-*.whl")
    called(folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}[spark,java]", cwd=folder)
    return folder / "bin"


def test_wheels_and_sources_pass_the_checks_of_an_index(built: Path) -> None:
    files = sorted(built.iterdir())
    assert [file.suffix for file in files] == [".whl", ".gz", ".whl", ".gz"]
    said = called(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=built)
    assert said.count("PASSED") == 4


def test_the_wheel_alone_explains_its_commands(programs: Path, tmp_path: Path) -> None:
    said = called(programs / "leasehold", "--help", cwd=tmp_path)
    assert [name for name in COMMANDS if name not in said] == []


def test_the_wheel_alone_makes_a_table_of_a_file(programs: Path, tmp_path: Path) -> None:
    run([block for block in blocks(FILES) if block.section not in KILLING], tmp_path, programs)


def test_the_wheel_of_the_test_kit_adds_its_commands(
    built: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Among them the servers of the second tutorial, of which Postgres is another user's where root runs this."""
    folder = tmp_path_factory.mktemp("kit")
    called(sys.executable, "-m", "venv", folder, cwd=tmp_path)
    [wheel], [kit] = built.glob("leasehold-*.whl"), built.glob("leasehold_testkit-*.whl")
    wheels = (f"{wheel}[spark,java,kafka,postgres,registry]", f"{kit}[kafka,postgres]")
    called(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *wheels, cwd=tmp_path)
    assert "seed 5: no violation" in called(folder / "bin" / "leasehold", "simulate", "--seed", "5", cwd=tmp_path)
    chosen = [block for block in blocks(SERVERS) if block.section not in KILLING]
    run(chosen, tmp_path, folder / "bin")
