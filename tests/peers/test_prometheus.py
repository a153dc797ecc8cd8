"""A real Prometheus scrapes a group and its instances through a rebalance, a restart and a stop, with our alerts.

Times are a twelfth of the defaults, those of the rules as well.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from leasehold.hubs.log.hub import LogHub
from leasehold.stores.sqlite.store import SqliteStore
from tests.metrics.files import ALERTS, PIPELINE
from tests.peers.debian import environment, unpacked
from tests.ports import free_port
from tests.repository import ROOT
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]

PARTITIONS = 4


@pytest.fixture(scope="module")
def programs() -> Path:
    return unpacked("prometheus", "prometheus")


class Scene:
    """A log, two workers at most, an exporter, and a Prometheus that scrapes all three once a second."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs
        self.hub = LogHub.create(folder / "hub.db", partitions=PARTITIONS)
        SqliteStore(folder / "store.db").create_schema()
        times = {"expiration": "2.5s", "timeout": "0.8s"}  # expires: what a killed worker had; looks come again
        text = PIPELINE.format(name="flights", group="$Default", **times)
        (folder / "flights.toml").write_text(text)
        self.ports = {name: free_port() for name in ("group", "a", "b", "prometheus")}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            self.running[name] = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=log, env=environment(self.programs)
            )

    def worker(self, name: str) -> None:
        program = (sys.executable, "-m", "tests.peers.metrics_worker")
        self.start(name, *program, str(self.folder), name, str(self.ports[name]))

    def exporter(self) -> None:
        listen = f"127.0.0.1:{self.ports['group']}"
        file = str(self.folder / "flights.toml")
        self.start("group", sys.executable, "-m", "leasehold", "metrics", file, "--listen", listen, "--window", "25s")

    def prometheus(self) -> None:
        jobs = [
            {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{self.ports[name]}"]}]}
            for name in ("group", "a", "b")
        ]
        rules = re.sub(r"for: (\d+)m", lambda found: f"for: {int(found[1]) * 5}s", ALERTS.read_text(encoding="utf-8"))
        (self.folder / "alerts.yml").write_text(rules)
        settings = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",  # impatient: it may be no longer than the interval, and the next one follows
                "evaluation_interval": "1s",
            },
            "rule_files": [str(self.folder / "alerts.yml")],
            "scrape_configs": jobs,
        }
        (self.folder / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
        self.start(
            "prometheus",
            str(self.programs / "usr" / "bin" / "prometheus"),
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{self.ports['prometheus']}",
        )

    def end(self, name: str, how: int) -> None:
        process = self.running.pop(name)
        process.send_signal(how)
        process.wait(PATIENCE)

    def api(self, path: str, **arguments: str) -> list[dict[str, Any]]:
        """What Prometheus answers, nothing while it is about to start."""
        url = f"http://127.0.0.1:{self.ports['prometheus']}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                data = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it reads its files
                return []
            raise
        except OSError:
            return []
        found: list[dict[str, Any]] = data if isinstance(data, list) else data["result"]
        return found

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The answer to a query, of now."""
        return self.api("query", query=query)

    def series(self) -> int:
        """How many series of the group there have ever been."""
        return len(self.api("series", **{"match[]": '{__name__=~"leasehold_(group|partition).*"}'}))

    def value(self, query: str) -> float | None:
        """The value of a query that has one."""
        found = self.ask(query)
        return float(found[0]["value"][1]) if found else None

    def until(self, condition: Callable[[], object], what: str) -> None:
        until(condition, f"{what}; see {self.folder}", pause=0.3)

    def send(self, count: int) -> None:
        for partition in self.hub.partition_ids():
            self.hub.append(pa.table({"body": pa.array([b"x"] * count, pa.binary())}), partition=partition)

    def all_done(self) -> bool:
        """Whether there is a checkpoint behind all events: what was scraped of the lag may be older than they are."""
        listed = SqliteStore(self.folder / "store.db").list_checkpoints(self.hub.consumer_group("$Default"))
        reached = {one.partition: one.next_sequence_number for one in listed}
        return reached == {p: known.end for p, known in self.hub.partition_properties().items()}

    def firing(self, since: float) -> set[str]:
        """The alerts that have fired in the last this many seconds."""
        found = self.ask(f'count_over_time(ALERTS{{alertstate="firing"}}[{since:.0f}s])')
        return {one["metric"]["alertname"] for one in found}


@contextmanager
def scene_of(folder: Path, programs: Path) -> Iterator[Scene]:
    scene = Scene(folder, programs)
    try:
        yield scene
    finally:
        for process in scene.running.values():
            process.kill()
            process.wait()


def test_a_rebalance_and_a_restart_are_silent_and_a_stop_is_not(tmp_path: Path, programs: Path) -> None:
    with scene_of(tmp_path, programs) as scene:
        begun = time.monotonic()
        scene.worker("a")
        scene.exporter()
        scene.prometheus()
        held = "sum(leasehold_instance_partitions)"
        owned = 'leasehold_group_partitions{state="owned"}'
        scene.send(100)
        scene.until(lambda: scene.value(held) == scene.value(owned) == PARTITIONS, "the first to hold everything")
        watched = time.monotonic()
        series = scene.value('count({__name__=~"leasehold_(group|partition).*"})')

        scene.worker("b")  # a rebalance
        scene.until(lambda: scene.value('leasehold_instance_partitions{job="b"}') == PARTITIONS / 2, "half of them")
        scene.until(lambda: scene.value(held) == PARTITIONS, "the other half")
        levels = scene.ask("leasehold_instance_partition_owner_level")
        assert sorted(one["metric"]["partition"] for one in levels) == [str(n) for n in range(PARTITIONS)]

        scene.end("b", signal.SIGTERM)  # a restart
        scene.until(lambda: scene.value('leasehold_instance_partitions{job="a"}') == PARTITIONS, "all to come back")
        scene.worker("b")
        scene.send(100)
        scene.until(lambda: scene.value('leasehold_instance_partitions{job="b"}') == PARTITIONS / 2, "half again")
        scene.until(scene.all_done, "all events")
        scene.until(lambda: scene.value("leasehold_group_lag_events") == 0, "the exporter to see that")

        looked = time.monotonic() - watched
        assert scene.value('count({__name__=~"leasehold_(group|partition).*"})') == series
        assert scene.series() == series  # no series that came and went
        span = f"[{looked:.0f}s]"
        scraped = scene.value(f'max(count_over_time(up{{job="group"}}{span}))')
        there = scene.value(f"min(count_over_time(leasehold_partition_lag_events{span}))")
        assert there is not None
        assert scraped is not None
        assert abs(scraped - there) <= 1  # no gap: at most the scrape that came between the two questions
        assert scene.firing(time.monotonic() - begun) == set()

        for name in ("a", "b"):
            scene.end(name, signal.SIGKILL)
        scene.send(100)
        scene.until(lambda: "LeaseholdStopped" in scene.firing(5), "the alert")
        assert scene.value("leasehold_group_lag_events") == 100 * PARTITIONS
        assert scene.value("leasehold_instance_partitions") is None  # what is gone has no series
        scene.worker("a")
        scene.until(lambda: scene.value('ALERTS{alertname="LeaseholdStopped"}') is None, "it to end")


def test_promtool_finds_nothing_to_complain_of(tmp_path: Path, programs: Path) -> None:
    promtool = str(programs / "usr" / "bin" / "promtool")
    rules = subprocess.run([promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert rules.returncode == 0, rules.stdout + rules.stderr
    with scene_of(tmp_path, programs) as scene:
        scene.worker("a")
        scene.exporter()
        for name in ("a", "group"):
            url = f"http://127.0.0.1:{scene.ports[name]}/metrics"

            def page(url: str = url) -> bytes:
                try:
                    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - of this machine
                        body: bytes = answer.read()
                        return body
                except OSError:
                    return b""

            scene.until(page, name)
            said = subprocess.run([promtool, "check", "metrics"], input=page(), capture_output=True, check=False)
            assert (said.returncode, said.stderr.decode()) == (0, "")
