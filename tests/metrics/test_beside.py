"""Series of several processes in one endpoint: real endpoints, one of them with an instance."""

from __future__ import annotations

import json
import socket

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from leasehold.counts import Counts
from leasehold.errors import ConfigError
from leasehold.listening import Address
from leasehold.metrics import serve_metrics
from leasehold.metrics.beside import Beside, together
from leasehold.metrics.exposition import text_of
from leasehold.metrics.server import HttpServer, MetricsResponse
from leasehold.notices import BatchDone, CycleEnded, Notices, TableApplied, WorkStalled
from tests.metrics.groups import samples
from tests.metrics.scraper import get
from tests.ports import free_port
from tests.waiting import PATIENCE

CYCLE = CycleEnded("a/1", 0.1, 10.0, {"0": 1e12}, 1, settled=True, failed=False, stalled=False, stall_timeout=600.0)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint that is there has no hurry to answer. One that is gone refuses the call at once."""
    monkeypatch.setattr("leasehold.metrics.beside.TIMEOUT", PATIENCE)


def test_counts_are_added_up_and_nothing_is_there_twice() -> None:
    source, table = Notices(), Notices()
    with (
        serve_metrics(source, listen="127.0.0.1:0") as there,
        serve_metrics(table, listen="127.0.0.1:0", beside=there.url.removeprefix("http://")) as server,
    ):
        source.publish(CYCLE)
        source.publish(BatchDone(20, {"plan": 0.5, "body": 2.0}))
        table.publish(BatchDone(10, {"plan": 0.25}))
        table.publish(TableApplied("entities", Counts(applied=19, used=19), 0.5, {"stage": 0.1}))
        page = get(f"{server.url}/metrics")[1]
        told = {name.removeprefix("leasehold_instance_"): value for name, value in samples(page).items()}
        assert (told["events_total"], told["batches_total"], told["partitions"]) == (30, 2, 0)
        assert told['batch_phase_seconds_sum{phase="plan"}'] == 0.75
        assert told['batch_phase_seconds_bucket{le="0.5",phase="plan"}'] == 2
        assert told['batch_phase_seconds_sum{phase="body"}'] == 2
        assert told['table_rows_total{outcome="applied"}'] == 19
        lines = [line for line in page.splitlines() if line.startswith("# TYPE")]
        assert len(lines) == len(set(lines))
        series = [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
        assert len(series) == len(set(series))


def test_probes_and_status_are_those_of_who_has_cycles() -> None:
    source, table = Notices(), Notices()
    with (
        serve_metrics(source, listen="127.0.0.1:0") as there,
        serve_metrics(table, listen="127.0.0.1:0", beside=[there.url.removeprefix("http://")]) as server,
    ):
        at = there.url.removeprefix("http://")
        assert get(f"{server.url}/readyz") == (503, f"{at}: no dispatch cycle has ended yet\n")
        source.publish(CYCLE)
        assert get(f"{server.url}/readyz") == get(f"{server.url}/livez") == (200, "ok\n")
        assert [one["ownerId"] for one in json.loads(get(f"{server.url}/status")[1])] == ["a/1"]
        source.publish(WorkStalled(("0",)))
        status, why = get(f"{server.url}/livez")
        assert (status, "partitions 0 has hung" in why) == (503, True)


def test_what_is_away_has_no_series_and_is_not_ready() -> None:
    port = free_port()
    with serve_metrics(Notices(), listen="127.0.0.1:0", beside=f"127.0.0.1:{port}") as server:
        up = f'leasehold_instance_beside_up{{endpoint="127.0.0.1:{port}"}}'
        assert samples(get(f"{server.url}/metrics")[1])[up] == 0
        assert get(f"{server.url}/readyz") == (503, f"127.0.0.1:{port} does not answer\n")
        assert get(f"{server.url}/livez") == (200, "ok\n")
        assert get(f"{server.url}/status") == (200, "[]")
        source = Notices()
        with serve_metrics(source, listen=f"127.0.0.1:{port}"):
            source.publish(CYCLE)
            assert samples(get(f"{server.url}/metrics")[1])[up] == 1
            assert get(f"{server.url}/readyz")[0] == 200
        assert samples(get(f"{server.url}/metrics")[1])[up] == 0


@pytest.mark.parametrize("said", [b"{", b'leasehold_x{a="', b"\xff\xfe", b"[1, 2"])
def test_what_nobody_can_read_ends_nothing(said: bytes) -> None:
    routes = {path: lambda: MetricsResponse(said) for path in ("/metrics", "/readyz", "/status")}
    with HttpServer(Address("127.0.0.1", 0), routes) as strange:
        beside = strange.url.removeprefix("http://")
        with serve_metrics(Notices(), listen="127.0.0.1:0", beside=beside) as server:
            assert get(f"{server.url}/metrics")[0] == get(f"{server.url}/status")[0] == 200
            assert get(f"{server.url}/readyz")[0] == 200


def test_one_that_takes_a_call_and_says_nothing_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.metrics.beside.TIMEOUT", 0.2)  # impatient: nobody answers
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert Beside(Address("127.0.0.1", silent.getsockname()[1])).metrics() is None


def test_families_that_one_alone_has_and_those_of_another_kind() -> None:
    counted = CounterMetricFamily("leasehold_a", "A.", value=2)
    gauge, other = GaugeMetricFamily("leasehold_a", "A.", value=7), GaugeMetricFamily("leasehold_b", "B.", value=3)
    told = samples(text_of(together([counted], [[gauge, other], [GaugeMetricFamily("leasehold_b", "B.", value=1)]])))
    assert told == {"leasehold_a_total": 2, "leasehold_b": 3}


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="beside"):
        serve_metrics(Notices(), listen="127.0.0.1:0", beside="nowhere")
