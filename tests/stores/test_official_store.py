"""The official Python checkpoint store and ours in one container: each works with what the other wrote."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import secrets
from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any

import pytest
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore
from azure.storage.blob import ContainerClient
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.clock import SystemClock
from leasehold.config import OwnershipSettings
from leasehold.errors import CheckpointStepBack, ConfigError, OwnerLevelSuperseded
from leasehold.model import EARLIEST, Ask, Checkpoint, ConsumerGroup, OwnerId, Ownership, Positions, Presence
from leasehold.ownership import PartitionManager
from leasehold.runtime import Runtime
from leasehold.stores.azure.access import BLOB, read_url
from leasehold.stores.azure.blob import BlobStore
from leasehold.stores.base import PipelineBinding
from leasehold_testkit.contracts.stores.ownership_records import claim, records
from tests.processor.fleet import Hub
from tests.stores.azurite import Azurite
from tests.waiting import NEVER

GROUP = ConsumerGroup("Fleet.servicebus.windows.net", "Flights", "$Default")
OFFICIAL = ("Fleet.servicebus.windows.net", "Flights", "$Default")
FOLDER = "fleet.servicebus.windows.net/flights/$default"
THEIRS = "5c8e4a52-0d0c-4b0f-9d8e-27f3b1e2a001"  # official processors are named by a UUID
OURS = "worker-1/3f9ac1"

Record = dict[str, Any]


@pytest.fixture
def container(azurite: Azurite) -> Iterator[ContainerClient]:
    name = f"fleet-{secrets.token_hex(4)}"
    azurite.make_container(name)
    with ContainerClient.from_connection_string(azurite.connection_string, name) as client:
        yield client


@pytest.fixture
def ours(azurite: Azurite, container: ContainerClient) -> Iterator[BlobStore]:
    store = BlobStore(read_url(azurite.url("azblob", container.container_name), BLOB), timeout=NEVER)
    yield store
    store.close()


@pytest.fixture
def official(azurite: Azurite, container: ContainerClient) -> Iterator[BlobCheckpointStore]:
    with BlobCheckpointStore.from_connection_string(azurite.connection_string, container.container_name) as store:
        yield store


def their_record(partition: str = "0", **fields: object) -> Record:
    keys = ("fully_qualified_namespace", "eventhub_name", "consumer_group")
    return {**dict(zip(keys, OFFICIAL, strict=True)), "partition_id": partition, "owner_id": THEIRS, **fields}


def their_listing(official: BlobCheckpointStore) -> dict[str, Record]:
    return {record["partition_id"]: record for record in official.list_ownership(*OFFICIAL)}


def their_checkpoints(official: BlobCheckpointStore) -> dict[str, Record]:
    return {record["partition_id"]: record for record in official.list_checkpoints(*OFFICIAL)}


def blobs(container: ContainerClient) -> dict[str, dict[str, str]]:
    """All blobs that official processors may see, with the metadata that they read."""
    official = ("ownerid", "offset", "sequencenumber")
    return {
        blob.name: {key: value or "" for key, value in (blob.metadata or {}).items() if key in official}
        for blob in container.list_blobs(include=["metadata"])
        if not blob.name.startswith("~leasehold/")
    }


# The same bytes


def test_names_and_metadata_are_those_of_the_official_store(
    ours: BlobStore, official: BlobCheckpointStore, container: ContainerClient
) -> None:
    [theirs] = official.claim_ownership([their_record("0")])
    official.claim_ownership([{**theirs, "owner_id": ""}])
    official.claim_ownership([their_record("1")])
    official.update_checkpoint(their_record("0", offset="4711", sequence_number=17))
    written = blobs(container)
    assert set(written) == {f"{FOLDER}/ownership/0", f"{FOLDER}/ownership/1", f"{FOLDER}/checkpoint/0"}
    for blob in list(container.list_blobs()):
        container.delete_blob(blob.name)
    ours.relinquish_ownership([claim(ours, GROUP, "0", owner=THEIRS)])
    claim(ours, GROUP, "1", owner=THEIRS)
    ours.update_checkpoints([Checkpoint(GROUP, "0", 17, 3, "4711")])
    assert blobs(container) == written


def test_nothing_of_ours_is_where_official_processors_look(ours: BlobStore, container: ContainerClient) -> None:
    owned = claim(ours, GROUP, "0")
    ours.renew_ownership([owned], Presence(GROUP, OURS))
    ours.ask([Ask(GROUP, "0", 1, OURS)])
    ours.bind_pipeline(GROUP, PipelineBinding("flights", "sink"))
    ours.raise_owner_level([Checkpoint(GROUP, "0", -1, 1)])
    names = {blob.name for blob in container.list_blobs(name_starts_with=FOLDER)}
    assert names == {f"{FOLDER}/ownership/0", f"{FOLDER}/checkpoint/0"}
    assert len({blob.name for blob in container.list_blobs()}) == 2 + 5


def test_names_as_spelled_are_those_of_go_and_rust(azurite: Azurite, container: ContainerClient) -> None:
    url = f"{azurite.url('azblob', container.container_name)}&names=as-spelled"
    with closing(BlobStore(read_url(url, BLOB), timeout=NEVER)) as store:
        claim(store, GROUP, "0")
        store.update_checkpoints([Checkpoint(GROUP, "0", 17, 1, "4711")])
        folder = "/".join(OFFICIAL)
        assert set(blobs(container)) == {f"{folder}/ownership/0", f"{folder}/checkpoint/0"}
        assert records(store, GROUP)["0"].owner_level == 1
        store.check_names(GROUP)


@pytest.mark.parametrize(
    ("theirs", "option", "remedy"),
    [
        ("/".join(OFFICIAL), "", "add names=as-spelled"),
        (FOLDER, "&names=as-spelled", "leave names=as-spelled out"),
        (FOLDER.replace("flights", "FLIGHTS"), "", "spell the names in the hub's URL"),
        (FOLDER.replace("flights", "~46lights"), "", "delete it"),
    ],
)
def test_two_worlds_are_refused_before_anything_is_written(
    azurite: Azurite, container: ContainerClient, theirs: str, option: str, remedy: str
) -> None:
    container.upload_blob(f"{theirs}/ownership/0", b"", metadata={"ownerid": THEIRS})
    container.upload_blob("another.servicebus.windows.net/flights/$Default/ownership/0", b"")
    url = f"{azurite.url('azblob', container.container_name)}{option}"
    with closing(BlobStore(read_url(url, BLOB), timeout=NEVER)) as store:
        with pytest.raises(ConfigError, match=re.escape(theirs)) as refused:
            store.check_names(GROUP)
        assert remedy in str(refused.value)
        hub = Hub(1)
        hub.url = "double://hub?fleet=mixed"
        manager = PartitionManager(
            hub,
            GROUP,
            store,
            store,
            owner_id=OwnerId("a"),
            settings=OwnershipSettings(),
            positions=Positions(EARLIEST),
            runtime=Runtime(clock=SystemClock(), rng=Random(1)),
        )
        manager.tick()
        with pytest.raises(ConfigError, match="would own all partitions"):
            manager.held()
        assert len(list(container.list_blobs())) == 2
        store.check_names(ConsumerGroup(OFFICIAL[0], "flights@1700000000000"))


def test_an_export_that_would_find_nothing_says_where_the_records_are(
    azurite: Azurite, container: ContainerClient
) -> None:
    container.upload_blob(f"{'/'.join(OFFICIAL)}/checkpoint/0", b"", metadata={"sequencenumber": "7", "offset": "7"})
    group = ["--group", "/".join(OFFICIAL)]
    url = azurite.url("azblob", container.container_name)
    refused = CliRunner().invoke(app, ["checkpoints", "export", url, *group])
    assert refused.exit_code != 0
    assert "add names=as-spelled" in refused.stderr
    found = CliRunner().invoke(app, ["checkpoints", "export", f"{url}&names=as-spelled", *group])
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout)["sequenceNumber"] == 7


# Ownership, both ways


def test_the_official_store_lists_what_ours_claimed(ours: BlobStore, official: BlobCheckpointStore) -> None:
    mine = claim(ours, GROUP, "0", owner=OURS)
    listed = their_listing(official)["0"]
    assert (listed["owner_id"], listed["etag"]) == (OURS, mine.etag)
    assert listed["last_modified_time"] == mine.last_modified
    ours.relinquish_ownership([mine])
    assert not their_listing(official)["0"]["owner_id"]


def test_ours_lists_what_the_official_store_claimed(ours: BlobStore, official: BlobCheckpointStore) -> None:
    [theirs] = official.claim_ownership([their_record("0")])
    listed = records(ours, GROUP)["0"]
    assert (listed.owner_id, listed.owner_level, listed.etag) == (THEIRS, 0, theirs["etag"].strip('"'))
    assert listed.last_modified == theirs["last_modified_time"]
    official.claim_ownership([{**theirs, "owner_id": ""}])
    assert records(ours, GROUP)["0"].owner_id == ""


def test_the_official_store_steals_from_ours(ours: BlobStore, official: BlobCheckpointStore) -> None:
    mine = claim(ours, GROUP, "0", owner=OURS, level=7)
    [stolen] = official.claim_ownership([{**their_listing(official)["0"], "owner_id": THEIRS}])
    assert stolen["owner_id"] == THEIRS
    assert ours.renew_ownership([mine]) == ours.relinquish_ownership([mine]) == []
    listed = records(ours, GROUP)["0"]
    assert (listed.owner_id, listed.owner_level) == (THEIRS, 7), "its write wiped the level; ours remembers it"


def test_ours_steals_from_the_official_store(ours: BlobStore, official: BlobCheckpointStore) -> None:
    [theirs] = official.claim_ownership([their_record("0")])
    [mine] = ours.claim_ownership([dataclasses.replace(records(ours, GROUP)["0"], owner_id=OURS, owner_level=1)])
    assert official.claim_ownership([theirs]) == [], "a renewal of theirs is lost"
    assert records(ours, GROUP) == {"0": mine}


def test_stale_etags_lose_both_ways(ours: BlobStore, official: BlobCheckpointStore) -> None:
    first = claim(ours, GROUP, "0", owner=OURS)
    seen = their_listing(official)["0"]
    [renewed] = ours.renew_ownership([first])
    assert official.claim_ownership([{**seen, "owner_id": THEIRS}]) == []
    # Azurite lets Set Metadata with If-None-Match pass; Azure refuses it, and with it the official store's first claim.
    assert ours.claim_ownership([Ownership(GROUP, "0", "x", 2)]) == []
    assert records(ours, GROUP) == {"0": renewed}


def test_a_level_never_goes_back_however_often_others_write(ours: BlobStore, official: BlobCheckpointStore) -> None:
    for level in (1, 2, 3):
        record = records(ours, GROUP).get("0") or Ownership(GROUP, "0", "", 0)
        assert record.owner_level == level - 1
        [mine] = ours.claim_ownership([dataclasses.replace(record, owner_id=OURS, owner_level=level)])
        assert mine.owner_level == level
        [stolen] = official.claim_ownership([{**their_listing(official)["0"], "owner_id": THEIRS}])
        official.claim_ownership([{**stolen, "owner_id": ""}])


def test_a_lost_claim_does_not_show_in_the_level(ours: BlobStore, official: BlobCheckpointStore) -> None:
    first = claim(ours, GROUP, "0", owner=OURS, level=1)
    [second] = ours.renew_ownership([first])
    assert ours.claim_ownership([dataclasses.replace(first, owner_id="late", owner_level=2)]) == []
    assert records(ours, GROUP) == {"0": second}
    official.claim_ownership([{**their_listing(official)["0"], "owner_id": THEIRS}])
    assert records(ours, GROUP)["0"].owner_level == 2, "a level may be skipped, and is never given twice"


# Checkpoints, both ways


def test_checkpoints_are_read_both_ways(ours: BlobStore, official: BlobCheckpointStore) -> None:
    ours.update_checkpoints([Checkpoint(GROUP, "0", 17, 3, "4711")])
    listed = their_checkpoints(official)["0"]
    assert (listed["offset"], listed["sequence_number"]) == ("4711", 17)
    official.update_checkpoint(their_record("1", offset="815", sequence_number=9))
    assert {c.partition: c for c in ours.list_checkpoints(GROUP)}["1"] == Checkpoint(GROUP, "1", 9, 0, "815")


def test_a_blind_write_keeps_no_former_owner_of_ours_in(
    ours: BlobStore, official: BlobCheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    ours.raise_owner_level([Checkpoint(GROUP, "0", 10, 3, "1000")])
    official.update_checkpoint(their_record("0", offset="2000", sequence_number=20))
    with caplog.at_level(logging.WARNING):
        assert ours.list_checkpoints(GROUP) == [Checkpoint(GROUP, "0", 20, 3, "2000")]
        ours.list_checkpoints(GROUP)
    assert len([one for one in caplog.messages if "another SDK's processor" in one]) == 1
    [superseded] = ours.update_checkpoints([Checkpoint(GROUP, "0", 30, 2, "3000")])
    assert isinstance(superseded, OwnerLevelSuperseded)
    assert ours.update_checkpoints([Checkpoint(GROUP, "0", 15, 3, "1500")]) == [], "it finished what it had: no loss"
    assert their_checkpoints(official)["0"]["offset"] == "2000", "and the place stays as far as it was"
    assert ours.update_checkpoints([Checkpoint(GROUP, "0", 30, 3, "3000")]) == []
    assert their_checkpoints(official)["0"]["offset"] == "3000"


def test_a_blind_write_in_between_is_no_loss_and_is_not_undone(ours: BlobStore, official: BlobCheckpointStore) -> None:
    ours.raise_owner_level([Checkpoint(GROUP, "0", 10, 3, "1000")])
    assert ours.update_checkpoints([Checkpoint(GROUP, "0", 11, 3, "1100")]) == []
    official.update_checkpoint(their_record("0", offset="2000", sequence_number=20))
    assert ours.update_checkpoints([Checkpoint(GROUP, "0", 12, 3, "1200")]) == []
    assert their_checkpoints(official)["0"]["offset"] == "2000"
    [superseded] = ours.update_checkpoints([Checkpoint(GROUP, "0", 12, 2, "1200")])
    assert isinstance(superseded, OwnerLevelSuperseded)
    assert ours.update_checkpoints([Checkpoint(GROUP, "0", 21, 3, "2100")]) == []
    [behind] = ours.update_checkpoints([Checkpoint(GROUP, "0", 20, 3, "2000")])
    assert isinstance(behind, CheckpointStepBack), "behind a place of ours it is refused as ever"


def test_raising_after_a_blind_write_keeps_their_place(ours: BlobStore, official: BlobCheckpointStore) -> None:
    ours.raise_owner_level([Checkpoint(GROUP, "0", 10, 3, "1000")])
    official.update_checkpoint(their_record("0", offset="2000", sequence_number=20))
    assert ours.raise_owner_level([Checkpoint(GROUP, "0", 0, 4)]) == [Checkpoint(GROUP, "0", 20, 4, "2000")]
    listed = their_checkpoints(official)["0"]
    assert (listed["offset"], listed["sequence_number"]) == ("2000", 20)


@pytest.mark.parametrize("number", [-1, 0, 999])
def test_a_start_without_an_offset_never_makes_others_skip(
    ours: BlobStore, official: BlobCheckpointStore, number: int
) -> None:
    ours.raise_owner_level([Checkpoint(GROUP, "0", number, 1)])
    listed = their_checkpoints(official)["0"]
    assert (listed["offset"], listed["sequence_number"]) == ("-1", -1)
    assert ours.list_checkpoints(GROUP) == [Checkpoint(GROUP, "0", number, 1)]
    ours.update_checkpoints([Checkpoint(GROUP, "0", number + 1, 1, "77")])
    listed = their_checkpoints(official)["0"]
    assert (listed["offset"], listed["sequence_number"]) == ("77", number + 1)
    ours.update_checkpoints([Checkpoint(GROUP, "0", number + 2, 1)])
    assert their_checkpoints(official)["0"]["offset"] == "77", "an earlier place that they can read"
    ours.update_checkpoints([Checkpoint(GROUP, "0", number, 2)])
    assert their_checkpoints(official)["0"]["offset"] == "-1", "77 is ahead now"


@pytest.mark.parametrize(
    ("metadata", "reads"),
    [
        ({"offset": "12:00:345", "sequencenumber": "5"}, (5, "12:00:345")),
        ({"offset": "no offset", "sequencenumber": "5"}, (5, None)),
        ({"offset": "", "sequencenumber": "5"}, (5, None)),
        ({"sequencenumber": "5"}, (5, None)),
        ({"offset": "500"}, (-1, "500")),
        ({"offset": "500", "sequencenumber": ""}, (-1, "500")),
        ({"offset": "", "sequencenumber": ""}, None),
        ({}, None),
    ],
)
def test_what_other_sdks_leave_out_is_read(
    ours: BlobStore, container: ContainerClient, metadata: dict[str, str], reads: tuple[int, str | None] | None
) -> None:
    container.upload_blob(f"{FOLDER}/checkpoint/0", b"", metadata=metadata)
    listed = [(one.sequence_number, one.offset) for one in ours.list_checkpoints(GROUP)]
    assert listed == ([] if reads is None else [reads])
    [stands] = ours.raise_owner_level([Checkpoint(GROUP, "0", 2, 1, "200")])
    assert (stands.sequence_number, stands.offset) == (reads or (2, "200"))
    assert ours.list_checkpoints(GROUP) == [stands]


def test_folders_of_a_hierarchical_account_are_no_records(ours: BlobStore, container: ContainerClient) -> None:
    container.upload_blob(f"{FOLDER}/ownership/0", b"", metadata={"ownerid": THEIRS})
    container.upload_blob(f"{FOLDER}/ownership/folder", b"", metadata={"hdi_isfolder": "true"})
    container.upload_blob(f"{FOLDER}/ownership/folder/1", b"", metadata={"ownerid": THEIRS})
    container.upload_blob(f"{FOLDER}/ownership/2", b"")
    assert {p: r.owner_id for p, r in records(ours, GROUP).items()} == {"0": THEIRS, "2": ""}
