"""The pipeline file of the documentation."""

from __future__ import annotations

WHOLE = """
name = "flights"
[source]
hub = "log:///hubs/flights.db"
consumer_group = "$Default"
starting_position = "earliest"
max_events_per_trigger = 50000
[ownership]
store = "sqlite:///leasehold.db"
strategy = "planned"
load_balancing_interval = "2s"
partition_expiration = "10s"
[transform]
schema = "id STRING, delay DOUBLE"
sql = "SELECT id, delay, hub, partition, sequenceNumber, ownerLevel FROM events"
[sink]
url = "sqlite:///entities.db"
table = "flights"
mode = "upsert"
keys = ["id"]
[spark]
"spark.sql.shuffle.partitions" = 4
"spark.ui.enabled" = true
"""
