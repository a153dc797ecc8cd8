"""What a person has to mend, under a queue processor: it ends a start, and a run waits for it and goes on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from leasehold.errors import SinkUnavailable, Verdict
from leasehold.processors.queues import QueueDelivery, QueueProcessor
from leasehold_testkit.emulators.service_bus import ServiceBusServer
from tests.azure_clients import LEAVES_SOCKETS
from tests.mending import fill, make_room, small_disk
from tests.queue_processor.accounts import logs, processor
from tests.queue_processor.runs import QUICK, bodies, running
from tests.queues.conftest import url
from tests.waiting import until

pytestmark = LEAVES_SOCKETS


def test_a_full_disk(server: ServiceBusServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small_disk(tmp_path / "disk") as disk:

        def made() -> QueueProcessor:
            delivery = QueueDelivery(**QUICK)
            return processor(url(server), tmp_path, "one", sink=f"sqlite:////{disk}/table.db", delivery=delivery)

        fill(disk)
        with pytest.raises(SinkUnavailable, match=r"disk is full.*make room") as refused:
            made().run()
        assert refused.value.verdict is Verdict.MEND
        make_room(disk)
        works = made()
        with running(works), caplog.at_level(logging.WARNING):
            server.send("orders", *bodies(0))
            until(lambda: works.counts["applied"] == 1, "the first message to be applied")
            fill(disk)
            server.send("orders", *bodies(*range(1, 200)))
            until(lambda: works.counts["away"] > 1, "the disk to be found full")
            make_room(disk)
            until(lambda: server.count("orders") == 0, "an empty queue")
        assert logs(disk) == {"a": [*range(200)]}
        assert len([line for line in caplog.messages if "disk is full" in line and "waiting for it" in line]) >= 1
