"""What instances are called that nobody has named: no two alike, and each so that its record can hold it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from leasehold.model import OwnerId
from leasehold.ownership.naming import unnamed
from leasehold.processors.events import EventProcessor
from leasehold.spark.plan.options import parse_options
from leasehold.spark.plan.share import instance_name
from leasehold.stores.memory.store import MemoryStore
from tests.processor.plain import log

HOSTS = [
    "host",
    "",
    "-.-",
    "a" * 253,
    "a-deployment-of-a-long-name-" * 8 + "7f9c4-x2v9q",
    "ho st/\u2026",
    ".begins.with.a.point",
    "x" * 10 + "-" * 60,
]


@pytest.mark.parametrize("host", HOSTS)
def test_no_two_are_alike_on_any_host_and_in_any_container(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    names = {OwnerId(unnamed(1)).name for _ in range(100)}
    assert len(names) == 100, "though host and process id are the same"


def test_the_end_of_a_hosts_name_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: HOSTS[4])
    assert unnamed().split("-")[-4:-2] == ["7f9c4", "x2v9q"]


def test_two_processors_and_two_queries_without_names_have_different_ones(tmp_path: Path) -> None:
    hub = log(tmp_path)
    one, two = (EventProcessor(hub, MemoryStore(), print) for _ in range(2))
    assert one.owner_id.name != two.owner_id.name
    options = parse_options({"path": f"log://{tmp_path}/x", "store": "memory://"})
    assert instance_name(options, 1) != instance_name(options, 1), "in one application, or in two containers"
