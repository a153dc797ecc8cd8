"""`deploy/alerts.yml` asks for series that there are."""

from __future__ import annotations

import re
from pathlib import Path

from leasehold.metrics.exposition import text_of
from leasehold.metrics.group_families import LookedAt, families
from leasehold.metrics.instance import InstanceMetrics
from leasehold.operations.verdicts import Standing
from leasehold.sinks.base import TableContents
from tests.metrics.files import ALERTS
from tests.metrics.groups import Group


def test_every_series_of_an_alert_is_served_and_every_verdict_but_ok_and_unknown_has_one(tmp_path: Path) -> None:
    group = Group(tmp_path, table=lambda: TableContents(1, 2))
    served = text_of(families([LookedAt("flights", group.look())])) + text_of(InstanceMetrics().registry.collect())
    there = set(re.findall(r"^# TYPE (\w+)", served.decode(), re.MULTILINE))
    text = ALERTS.read_text(encoding="utf-8")
    asked = set(re.findall(r"leasehold_\w+", "".join(re.findall(r"expr: (.*)", text))))
    assert len(asked) > 8
    assert asked - there == set()
    assert set(re.findall(r'verdict="(\w+)"', text)) == {
        verdict.name.lower() for verdict in Standing if verdict not in (Standing.OK, Standing.UNKNOWN)
    }
