"""A plain processor that serves its metrics at a port, and applies nothing: it only says that events are done."""

from __future__ import annotations

import sys
from pathlib import Path

from leasehold.config import OwnershipSettings
from leasehold.hubs.log.hub import LogHub
from leasehold.metrics import serve_metrics
from leasehold.processors.events import EACH_BATCH, DeliverySettings, EventProcessor
from leasehold.stores.sqlite.store import SqliteStore


def work(folder: Path, name: str, port: str) -> None:
    """Process events until asked to end."""
    processor = EventProcessor(
        LogHub(folder / "hub.db"),
        SqliteStore(folder / "store.db", timeout=30.0),
        lambda batch, context: None,
        name=name,
        ownership=OwnershipSettings(
            load_balancing_interval=0.5,
            partition_expiration=12.0,
            request_timeout=5.0,
            margin=0.15,
            settle_delay=0.3,
        ),
        delivery=DeliverySettings(max_batch=20, poll_interval=0.05, checkpoint=EACH_BATCH),
    )
    with serve_metrics(processor.notices, listen=f"127.0.0.1:{port}"):
        processor.run()


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
