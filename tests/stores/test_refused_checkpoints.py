"""Checkpoints that a real service refuses: a container that somebody deletes under a running processor."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("azure.storage.blob")

from azure.storage.blob import BlobServiceClient

from leasehold.processors.events import EACH_BATCH, EventProcessor, Handlers, StopReason
from leasehold.stores.memory.store import MemoryStore
from tests.processor.plain import DELIVERY, SETTINGS, Handler, log, send
from tests.stores.azurite import Azurite
from tests.waiting import until


def test_a_container_that_was_deleted_is_tried_until_a_person_has_made_it_again(
    tmp_path: Path, azurite: Azurite, caplog: pytest.LogCaptureFixture
) -> None:
    """There were 1,700 requests in ten seconds, and a line for each. Later the partition was given up and claimed
    again, and the same events were handled every few seconds."""
    name = f"tests-{secrets.token_hex(4)}"
    azurite.make_container(name)
    hub, owners, handler = log(tmp_path, partitions=1, each=5), MemoryStore(), Handler()
    group = hub.consumer_group("$Default")
    processor = EventProcessor(
        hub,
        (owners, azurite.url("azblob", name)),
        Handlers(handler.on_events, on_partition_stop=handler.on_stop, on_error=handler.on_error),
        ownership=replace(SETTINGS, request_timeout=60.0),  # the checkpoints are a server's
        delivery=replace(DELIVERY, attempts=3, restart_backoff=0.1, longest_backoff=0.4, checkpoint=EACH_BATCH),
    )
    with processor:
        handler.wait(5)
        with BlobServiceClient.from_connection_string(azurite.connection_string) as service:
            service.delete_container(name)
        send(hub, 5)
        until(lambda: handler.errors, "the refusal")
        handler.wait(10)
        azurite.make_container(name)
        until(lambda: "written after all" in caplog.text, "the checkpoint")
    assert owners.list_ownership(group).records[0].last_error == ""
    assert handler.stopped == [("0", 1, StopReason.SHUTDOWN)]
    assert len(handler.errors) == 1
    assert len([line for line in caplog.messages if line.startswith("partition 0: ")]) == 2  # refused, and written
