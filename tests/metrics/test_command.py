"""`leasehold metrics`, as a process beside those that it watches, and once."""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.errors import ConfigError
from leasehold.hubs.log.hub import LogHub
from leasehold.installation import command_for
from leasehold.listening import Address
from leasehold.metrics.server import MOST_CLIENTS, HttpServer, MetricsResponse
from leasehold.operations.verdicts import Standing
from tests.metrics.files import PIPELINE
from tests.metrics.groups import of, samples
from tests.waiting import NEVER, PATIENCE, until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    hub = LogHub.create(tmp_path / "hub.db", partitions=2)
    for partition in hub.partition_ids():
        hub.append(pa.table({"body": pa.array([b"x"] * 100, pa.binary())}), partition=partition)
    for name, group in (("flights", "$Default"), ("orders", "others")):
        text = PIPELINE.format(name=name, group=group, expiration=f"{NEVER:g}s", timeout="60s")
        (tmp_path / f"{name}.toml").write_text(text)
    return tmp_path


def ran(*arguments: object) -> tuple[int, str, str]:
    said = CliRunner().invoke(app, ["metrics", *(str(argument) for argument in arguments)])
    return said.exit_code, said.stdout, said.stderr


def made(folder: Path) -> None:
    assert CliRunner().invoke(app, ["init", f"sqlite:///{folder}/store.db"]).exit_code == 0


def test_once_prints_what_the_records_show(folder: Path) -> None:
    made(folder)
    code, page, _ = ran(folder / "flights.toml", folder / "orders.toml", "--once")
    told = samples(page)
    assert code == 0
    assert (of(told, "group_lag_events"), told['leasehold_group_lag_events{pipeline="orders"}']) == (200, 200)
    assert of(told, "group_verdict") == Standing.STOPPED  # nobody has ever held a partition
    assert (of(told, "table_rows"), of(told, "table_rejected_events")) == (0, 0)
    assert not (folder / "table.db").exists()


def test_once_as_json_says_why(folder: Path) -> None:
    made(folder)
    code, said, _ = ran(folder / "flights.toml", "--once", "--json")
    [page] = [json.loads(line) for line in said.splitlines()]
    assert (code, page["verdict"], page["lag"], page["secondsLeft"]) == (0, "stopped", 200, None)
    assert [one["why"] for one in page["partitions"]] == ["nobody has ever held it, and 100 events are unread"] * 2


def test_a_store_that_is_not_there_yet_is_down_and_not_made(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    code, page, _ = ran(folder / "flights.toml", "--once")
    assert (code, samples(page)) == (1, {'leasehold_group_up{pipeline="flights"}': 0})
    assert not (folder / "store.db").exists()
    assert "there is no store" in caplog.text


@pytest.mark.parametrize(
    ("listen", "rule"), [("9464", "HOST:PORT"), ("127.0.0.1:70000", "HOST:PORT"), ("::1:80", "HOST:PORT")]
)
def test_an_address_that_is_none_is_refused(folder: Path, listen: str, rule: str) -> None:
    code, _, said = ran(folder / "flights.toml", "--listen", listen)
    assert (code, rule in said) == (1, True)


def test_two_pipelines_of_one_name_are_refused(folder: Path) -> None:
    code, _, said = ran(folder / "flights.toml", folder / "flights.toml", "--once")
    assert (code, "another of these files has it too" in said) == (1, True)


def test_without_its_extra_the_command_names_it(folder: Path) -> None:
    without = "import sys; sys.modules['prometheus_client'] = None; from leasehold.cli.app import main; main()"
    command = [sys.executable, "-c", without, "metrics", str(folder / "flights.toml"), "--once"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (said.returncode, command_for("metrics") in said.stderr) == (1, True)


# as processes


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def asked(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - an address of this machine
        body: bytes = answer.read()
    return body.decode()


@pytest.mark.more
def test_it_sees_two_processes_share_and_one_die_and_nobody_left(folder: Path) -> None:
    """All figures are there before anybody runs, while both do, and when nobody does any more."""
    from leasehold.stores.sqlite.store import SqliteStore

    command = ["-m", "leasehold", "metrics", str(folder / "flights.toml"), "--listen", "127.0.0.1:0", "--window", "2s"]
    worker = ["-m", "tests.faults.plain_worker", str(folder)]
    with running(*command) as metrics:
        assert metrics.stdout is not None
        url = re.search(r"http://\S+/metrics", metrics.stdout.readline())
        assert url is not None
        assert samples(asked(url[0])) == {'leasehold_group_up{pipeline="flights"}': 0}
        SqliteStore(folder / "store.db").create_schema()
        seen: list[set[str]] = []

        def told(name: str, **labels: str) -> float | None:
            found = samples(asked(url[0]))
            if of(found, "group_up"):  # a look that is late shows nothing
                seen.append(set(found))
            return of(found, name, **labels)

        until(lambda: told("group_verdict") == Standing.STOPPED, "a verdict before anybody runs")
        before = seen[-1]
        with running(*worker, "a", f"{NEVER}") as first, running(*worker, "b", f"{NEVER}") as second:
            until(lambda: told("group_instances") == 2, "both")
            until(lambda: told("group_partitions", state="owned") == 2, "all partitions to be held")
            until(lambda: told("group_lag_events") == 0, "all events")
            until(lambda: told("table_rows") == 200, "all rows")
            until(lambda: told("group_verdict") == Standing.OK, "nothing to be wrong")
            moves = told("partition_acquisitions_total", partition="0")
            gone(folder, "a", first)
            until(lambda: told("group_instances") == 1, "one to be missed")
            until(lambda: told("group_partitions", state="owned") == 2, "its partition to be taken over")
            gone(folder, "b", second)
        hub = LogHub(folder / "hub.db")
        hub.append(pa.table({"body": pa.array([b"x"] * 7, pa.binary())}), partition="0")
        until(lambda: told("group_verdict") == Standing.STOPPED, "nobody to be left")
        until(lambda: told("group_lag_events") == 7, "what nobody reads")
        assert (moves or 0) >= 1
        assert all(one == before for one in seen[seen.index(before) :])
        status = json.loads(asked(url[0].replace("/metrics", "/status")))
        assert re.search("expired|nobody has held it", status[0]["partitions"][0]["why"])
        metrics.send_signal(signal.SIGINT)
        assert metrics.wait(PATIENCE) == 130


def gone(folder: Path, name: str, process: subprocess.Popen[str]) -> None:
    """Kill an instance, long ago for all who look at its records."""
    process.kill()
    process.wait()
    with closing(sqlite3.connect(folder / "store.db", timeout=PATIENCE, isolation_level=None)) as store:
        for table in ("leasehold_ownership", "leasehold_presence"):
            aged = f"UPDATE {table} SET last_modified = last_modified - ? WHERE owner_id LIKE ? || '/%'"
            store.execute(aged, (2 * NEVER, name))


def test_another_address_than_loopback_is_warned_of(folder: Path) -> None:
    with running("-m", "leasehold", "metrics", str(folder / "flights.toml"), "--listen", "0.0.0.0:0") as process:
        assert process.stderr is not None
        assert "may be reached from other machines" in process.stderr.readline()


# the server


def test_a_port_in_use_is_told_and_a_failing_path_is_one_answer() -> None:
    def failing() -> MetricsResponse:
        raise RuntimeError("no")

    with HttpServer(Address("127.0.0.1", 0), {"/fails": failing, "/works": lambda: MetricsResponse(b"yes")}) as server:
        assert asked(f"{server.url}/works?x=1") == "yes"
        for path, status in (("/fails", 500), ("/", 404)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                asked(f"{server.url}{path}")
            assert refused.value.code == status
            refused.value.close()
        with pytest.raises(ConfigError, match="cannot be listened at"):
            HttpServer(server.address, {})


def test_clients_cost_so_many_threads_and_each_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())

    def served() -> int:
        """How many threads answer requests here."""
        return sum("process_request_thread" in thread.name for thread in set(threading.enumerate()) - before)

    bounds = HttpServer.__init__.__globals__  # another test imports the module anew
    for bound in ("LONGEST", "_PATIENCE"):
        monkeypatch.setitem(bounds, bound, NEVER)
    with ExitStack() as stack:
        server = stack.enter_context(HttpServer(Address("127.0.0.1", 0), {"/works": lambda: MetricsResponse(b"yes")}))
        place = (server.address.host, server.address.port)
        silent = [stack.enter_context(socket.create_connection(place)) for _ in range(MOST_CLIENTS + 20)]
        for one in silent[MOST_CLIENTS:]:
            one.settimeout(PATIENCE)
            assert one.recv(1) == b""  # hung up on
        assert served() == MOST_CLIENTS
        for one in silent:
            one.close()
        until(lambda: served() == 0, "the threads of clients that have gone")
        assert asked(f"{server.url}/works") == "yes"
        monkeypatch.setitem(bounds, "LONGEST", 0.3)
        slow = stack.enter_context(socket.create_connection(place))
        slow.settimeout(0.05)

        def hung_up_on() -> bool:
            try:
                slow.sendall(b"G")
                return slow.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        until(hung_up_on, "the end of a client that says a byte now and then")
        until(lambda: served() == 0, "the thread of the slow client")


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464, True),
        ("[::1]:0", "::1", 0, True),
        ("localhost:80", "localhost", 80, True),
        ("0.0.0.0:9464", "0.0.0.0", 9464, False),  # noqa: S104 - nobody listens there
        ("[::]:1", "::", 1, False),
    ],
)
def test_addresses(text: str, host: str, port: int, loopback: bool) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.is_loopback, str(address)) == (host, port, loopback, text)
