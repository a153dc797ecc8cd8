"""Which PySparks: the oldest for `make peers`, each for `make soak`, or whichever an environment variable names.

`LEASEHOLD_TEST_PYTHON=/path/to/python` points all of these tests at an interpreter that is there: a platform's, say.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from leasehold.spark.session.versions import FIRST_WITH_SOURCE, NEWEST, OLDEST, Release, parse_release
from tests.repository import ROOT
from tests.versions.environments import python_with

VARIABLE = "LEASEHOLD_TEST_PYTHON"
RELEASES = (OLDEST, Release(4, 0), Release(4, 1), FIRST_WITH_SOURCE, NEWEST)


@dataclass(frozen=True)
class Interpreter:
    """A Python with a PySpark."""

    path: Path
    spark: Release

    def environment(self) -> dict[str, str]:
        """What its programs get: this checkout, and none of what leads PySpark to another Python."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
        paths = (ROOT / "src", ROOT / "testkit" / "src", ROOT)
        return {**kept, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *words: str | Path, folder: Path = ROOT, timeout: float = 280) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            [self.path, *words],
            cwd=folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def _releases() -> list[object]:
    if os.environ.get(VARIABLE):
        return [pytest.param(None, id="spark-there", marks=[pytest.mark.peers, pytest.mark.soak])]
    marks = {OLDEST: [pytest.mark.peers, pytest.mark.soak]}
    return [pytest.param(str(each), id=f"spark-{each}", marks=marks.get(each, pytest.mark.soak)) for each in RELEASES]


@pytest.fixture(scope="session", params=_releases())
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    """An interpreter with another PySpark than that of the tests."""
    path = Path(os.environ[VARIABLE]) if request.param is None else python_with(request.param)
    said = subprocess.run(
        [path, "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True, check=True
    )
    found = parse_release(said.stdout)
    assert request.param in (None, str(found))
    return Interpreter(path, found)
