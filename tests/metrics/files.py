"""Files that metrics are about: the alerts that are shipped, and a pipeline to look at."""

from __future__ import annotations

from tests.repository import ROOT

ALERTS = ROOT / "deploy" / "alerts.yml"
PIPELINE = """
name = "{name}"

[source]
hub = "log:///hub.db"
consumer_group = "{group}"

[ownership]
store = "sqlite:///store.db"
load_balancing_interval = "0.5s"
partition_expiration = "{expiration}"
request_timeout = "{timeout}"
margin = "0.15s"

[sink]
url = "sqlite:///table.db"
table = "seen"
mode = "append"
keep = ["partition", "sequenceNumber"]
"""
