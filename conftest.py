"""What holds for all tests: where their files are, their order, Ctrl-C, servers, and processes that start quickly."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests import class_archive, temporary_folder
from tests.azure_clients import leaves_sockets
from tests.repository import ROOT
from tests.spark_sessions import uses_session
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.hubs.kafka_cluster import Cluster
    from tests.sharing_out import FewSessions
    from tests.sinks.postgres import Place
    from tests.stores.azurite import Azurite
    from tests.stores.servers import PostgresServer, RedisServer
    from xdist.remote import Producer

temporary_folder.settle()

# Nearly all that collecting tests makes stays: looking at it again and again costs each worker two seconds.
gc.disable()

# Properties are about what comes out, not about how long a shared core took; and the gate tries the same examples in
# each run. `make soak` draws new ones.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("repeatable", _PATIENT, derandomize=True, database=None)
settings.register_profile("new examples", _PATIENT)
settings.load_profile("repeatable")

# A process that a test starts would compile the whole package anew, and each worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

for _name, _value in class_archive.options().items():
    os.environ.setdefault(_name, _value)

pytest_plugins = ["tests.more"]

BUSY = {"faults", "spark"}
WAITING = {"hubs", "queue_processor", "queues", "service_bus"}
"""Folders whose tests keep a processor busy, and those whose tests wait for servers most of the time."""

_QUICK_START = str(ROOT / "tests" / "quick_start")
_path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
if _QUICK_START not in _path:
    os.environ["PYTHONPATH"] = os.pathsep.join([_QUICK_START, *_path])

# Under `make cover`: a worker that Spark keeps for the next task ends by a signal, and would not say what it ran.
_WORKERS_END = "-Dspark.python.worker.reuse=false"
_submit = os.environ.get("SPARK_SUBMIT_OPTS", "")
if "COVERAGE_PROCESS_CONFIG" in os.environ and _WORKERS_END not in _submit:
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_submit} {_WORKERS_END}".strip()

# A shell that runs something in the background has it ignore Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # after --random-order, whose order of files and tests is kept as far as turns go
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """First what uses a worker's Spark session, which takes longest. Then files whose tests start Javas, files that
    mostly wait, and all others take turns: no kind gets all workers at once, so that processors are never idle. Those
    that wait end earlier, since the last of them would be waited for by all."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    long = [file for file in files if uses_session(PurePosixPath(file.relative_to(config.rootpath)))]
    others = [file for file in files if file not in long]
    busy, waiting = ([file for file in others if kind & set(file.parts)] for kind in (BUSY, WAITING))
    rest = [file for file in others if file not in {*busy, *waiting}]
    kinds = (busy, 1.0), (waiting, 0.8), (rest, 1.0)
    turns = [(end * place / len(kind), file) for kind, end in kinds for place, file in enumerate(kind)]
    items[:] = [item for file in [*long, *(file for _, file in sorted(turns))] for item in files[file]]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "FewSessions | None":
    from tests.sharing_out import FewSessions

    return FewSessions(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What collecting has made stays for good. Each later look of the garbage collector passes it by.

    Without this a look at all objects takes a quarter of a second, and `collected` alone asks for hundreds.
    """
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the official clients have left is let go while the test's filter of warnings is in force."""
    yield
    if leaves_sockets(request.node):
        gc.collect()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator["PostgresServer"]:
    """The Postgres server that all workers share, with a database of this worker's own."""
    from tests.stores.servers import postgres_for_all

    with postgres_for_all() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator["RedisServer"]:
    """The Redis server that all workers share. A test takes keys of its own."""
    from tests.stores.servers import redis_for_all

    with redis_for_all() as server:
        yield server


@pytest.fixture(scope="module")
def own_postgres() -> Iterator["PostgresServer"]:
    """A Postgres server of the file's own, which its tests may kill, stop and empty."""
    from tests.stores.servers import postgres_of_its_own

    with postgres_of_its_own() as server:
        yield server


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator["RedisServer"]:
    """A Redis server of the file's own, which its tests may kill, stop and empty."""
    from tests.stores.servers import RedisServer

    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.end()


@pytest.fixture(scope="session")
def azurite() -> Iterator["Azurite"]:
    """The Azurite that all workers share. A test makes a container, a table or a group of its own."""
    from tests.stores.azurite import azurite_for_all

    with azurite_for_all() as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator["Cluster"]:
    """The Kafka cluster of this worker. A test takes topics of its own, and never kills, stops or fails it.

    Not one for all workers: it is told by its input what to do, and only the process that started it has that. It
    starts in a tenth of a second.
    """
    from tests.hubs.kafka_cluster import Cluster

    cluster = Cluster()
    yield cluster
    cluster.kill()


@pytest.fixture
def patient_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call to Kafka has to hurry, but for one that is given a time."""
    for name in ("REQUEST", "TRANSFER"):
        monkeypatch.setenv(f"LEASEHOLD_KAFKA_{name}_TIMEOUT", f"{PATIENCE:g}s")


@pytest.fixture
def place(postgres_server: "PostgresServer") -> Iterator["Place"]:
    """A schema of the test's own on that Postgres server."""
    from tests.sinks.postgres import place_on

    with place_on(postgres_server.url) as made:
        yield made
