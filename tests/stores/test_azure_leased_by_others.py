"""What a lease that another program holds on a blob of the store keeps from being written, and what it does not."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

import pytest
from azure.storage.blob import BlobServiceClient

from leasehold.config import OwnershipSettings
from leasehold.errors import StoreUnavailable
from leasehold.model import Checkpoint, ConsumerGroup, OwnerId, Ownership, Positions, Presence, RecordKind
from leasehold.notices import Notices, RecordSkipped
from leasehold.ownership import PartitionManager
from leasehold.runtime import Runtime
from leasehold.stores.azure.access import BLOB, read_url
from leasehold.stores.azure.blob import BlobRecords, BlobStore
from leasehold.stores.azure.calls import Calls, Deadline, Leased
from leasehold.stores.azure.checkpoints import CheckpointRecords
from leasehold.stores.azure.layout import Properties, StoredRecord, read_level
from leasehold.stores.azure.records import Area, RecordName
from leasehold_testkit.contracts.stores.groups import new_group
from leasehold_testkit.contracts.stores.ownership_records import records
from tests.processor.plain import log
from tests.stores.azurite import Azurite
from tests.waiting import NEVER, until

NAMES_THE_LEASE = "another program has leased the blob .*/{}/.*az storage blob lease break"

Leases = Callable[[ConsumerGroup, Area, str], AbstractContextManager[None]]
"""While the block runs, another program holds the lease of the one blob of the group whose name ends so."""


@pytest.fixture(scope="module")
def container(azurite: Azurite) -> str:
    name = f"leased-{secrets.token_hex(4)}"
    azurite.make_container(name)
    return name


@pytest.fixture
def store(azurite: Azurite, container: str) -> Iterator[BlobStore]:
    store = BlobStore(read_url(azurite.url("azblob", container), BLOB), timeout=NEVER)
    yield store
    store.close()


@pytest.fixture
def blobs(azurite: Azurite, container: str) -> Iterator[BlobRecords]:
    blobs = BlobRecords(read_url(azurite.url("azblob", container), BLOB), Calls("there", NEVER), 5_000)
    yield blobs
    blobs.close()


@pytest.fixture
def leased(azurite: Azurite, container: str) -> Iterator[Leases]:
    with BlobServiceClient.from_connection_string(azurite.connection_string) as service:

        @contextmanager
        def leased(group: ConsumerGroup, area: Area, ending: str) -> Iterator[None]:
            names = [each.name for each in service.get_container_client(container).list_blobs()]
            folder = f"{group.namespace}/{group.hub}/{group.name}/{area}/".lower()
            [name] = [name for name in names if folder in name and name.endswith(ending)]
            lease = service.get_blob_client(container, name).acquire_lease()
            yield
            lease.break_lease(0)

        yield leased


def checkpoints(group: ConsumerGroup, level: int, number: int = 5) -> list[Checkpoint]:
    return [Checkpoint(group, partition, number, level) for partition in ("0", "1", "2")]


def test_a_level_is_not_waited_for(blobs: BlobRecords, leased: Leases) -> None:
    address = RecordName(new_group(), Area.OWNERSHIP_LEVEL, "0")
    first = blobs.raise_level(address, 1, None, Deadline(NEVER))
    with (
        leased(address.group, address.area, "0"),
        pytest.raises(StoreUnavailable, match=NAMES_THE_LEASE.format("ownership-level")),
    ):
        blobs.raise_level(address, 2, first, Deadline(NEVER))
    assert read_level(blobs.raise_level(address, 2, first, Deadline(NEVER))) == 2


def test_a_write_that_was_made_before_the_lease_is_known_again(
    blobs: BlobRecords, leased: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, write = RecordName(new_group(), Area.FLEET, "one"), blobs._write
    stands = blobs.put(address, {"number": "1"}, Deadline(NEVER))

    with ExitStack() as until_the_end:

        def unanswered(
            address: RecordName, properties: Properties, etag: str | None, deadline: Deadline
        ) -> StoredRecord:
            monkeypatch.setattr(blobs, "_write", write)
            write(address, properties, etag, deadline)
            until_the_end.enter_context(leased(address.group, address.area, "one"))
            raise StoreUnavailable("the answer is lost")

        monkeypatch.setattr(blobs, "_write", unanswered)
        written = blobs.write(address, {"number": "2"}, stands.etag, Deadline(NEVER))
        assert written is not None
        assert written.properties["number"] == "2"
        with pytest.raises(Leased):
            blobs.write(address, {"number": "3"}, written.etag, Deadline(NEVER))


@pytest.mark.more(but=1)
@pytest.mark.parametrize("area", [Area.CHECKPOINT, Area.CHECKPOINT_LEVEL])
def test_an_announcement_is_made_for_the_other_partitions(store: BlobStore, leased: Leases, area: Area) -> None:
    group = new_group()
    assert store.raise_owner_level(checkpoints(group, 1)) == checkpoints(group, 1)
    raised = checkpoints(group, 2)
    with leased(group, area, "1"):
        assert store.raise_owner_level(raised) == [raised[0], raised[2]]
        listed = {one.partition: one.owner_level for one in store.list_checkpoints(group)}
        assert listed == {"0": 2, "1": 1, "2": 2}
    assert store.raise_owner_level(raised) == raised


@pytest.mark.more(but=1)
@pytest.mark.parametrize("area", [Area.CHECKPOINT, Area.CHECKPOINT_LEVEL])
def test_checkpoints_of_the_other_partitions_are_written_and_the_lease_is_named(
    store: BlobStore, leased: Leases, caplog: pytest.LogCaptureFixture, area: Area
) -> None:
    group = new_group()
    store.raise_owner_level(checkpoints(group, 1))
    for number in (6, 7):
        with (
            leased(group, area, "1"),
            pytest.raises(StoreUnavailable, match=NAMES_THE_LEASE.format(area)),
        ):
            store.update_checkpoints(checkpoints(group, 2, number))
        listed = {one.partition: one.sequence_number for one in store.list_checkpoints(group)}
        assert listed == {"0": number, "1": 5, "2": number}
    assert len([record for record in caplog.records if "leased" in record.getMessage()]) == 1, "once"
    assert store.update_checkpoints(checkpoints(group, 2, 8)) == []


@pytest.mark.more
def test_a_former_owner_is_refused_meanwhile(store: BlobStore, blobs: BlobRecords, leased: Leases) -> None:
    group, former = new_group(), CheckpointRecords(blobs)
    former.raise_owner_level(checkpoints(group, 1))
    store.raise_owner_level(checkpoints(group, 2))
    with leased(group, Area.CHECKPOINT, "1"):
        with suppress(StoreUnavailable):  # it writes at once what it wrote last, and then looks
            former.update_checkpoints(checkpoints(group, 1, 6)[1:2])
        [refused] = former.update_checkpoints(checkpoints(group, 1, 6)[1:2])
    assert refused.partition == "1"


@pytest.mark.parametrize("area", [Area.OWNERSHIP, Area.OWNERSHIP_LEVEL])
def test_the_other_partitions_are_claimed(store: BlobStore, leased: Leases, area: Area) -> None:
    group = new_group()
    held = store.claim_ownership([Ownership(group, partition, "me", 1) for partition in ("0", "1", "2")])
    claims = [Ownership(group, one.partition, "you", 2, one.etag) for one in held]
    with leased(group, area, "1"):
        assert [one.partition for one in store.claim_ownership(claims)] == ["0", "2"]
    assert [one.partition for one in store.claim_ownership(claims)] == ["1"]


def test_a_heartbeat_whose_presence_is_leased_renews_and_names_the_lease(
    store: BlobStore, leased: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    group = new_group()
    presence = Presence(group, "me")
    held = store.claim_ownership([Ownership(group, "0", "me", 1)])
    held = store.renew_ownership(held, presence)
    with leased(group, Area.FLEET, "presence-me"):
        held = store.renew_ownership(held, presence)
        assert records(store, group) == {"0": held[0]}
        assert "1 of 2 renewals failed" in caplog.text
        with pytest.raises(StoreUnavailable, match=NAMES_THE_LEASE.format("fleet")):
            store.renew_ownership([], presence)
    store.renew_ownership([], presence)


def test_an_instance_takes_the_other_partitions_and_this_one_after_the_lease(
    store: BlobStore, leased: Leases, tmp_path: Path
) -> None:
    hub = log(tmp_path)
    group, told, notices = hub.consumer_group(secrets.token_hex(4)), list[RecordSkipped](), Notices()
    notices.subscribe(told.append, RecordSkipped)
    store.raise_owner_level([Checkpoint(group, partition, -1, 1) for partition in ("0", "1")])
    manager = PartitionManager(
        hub,
        group,
        store,
        store,
        owner_id=OwnerId("me"),
        settings=OwnershipSettings(),
        positions=Positions(),
        runtime=Runtime(rng=Random(1), notices=notices),
    )

    def holds(*partitions: str) -> bool:
        manager.tick()
        return set(manager.held()) == set(partitions)

    with leased(group, Area.CHECKPOINT, "0"):
        until(lambda: holds("1"), "the other partition to be held")
        assert holds("1"), "and cycle by cycle"
        assert [(one.kind, one.name) for one in told] == [(RecordKind.CHECKPOINT, "0")]
        assert "could not be written" in told[0].reason
    until(lambda: holds("0", "1"), "both to be held")
    manager.relinquish()
