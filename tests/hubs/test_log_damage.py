"""Log files of every format, and files that something else than Leasehold has written to."""

from __future__ import annotations

import random
import resource
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from leasehold.errors import HubError, HubUnavailable
from leasehold.hubs.arrow_events import events_of
from leasehold.hubs.log.format import BatchRow
from leasehold.hubs.log.hub import LogHub
from leasehold.hubs.log.payload import checked, decoded, payloads
from leasehold_testkit.clock import ManualClock
from tests.hubs import flips
from tests.hubs.flips import events, table
from tests.hubs.log_files import write_format_1
from tests.waiting import PATIENCE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hub.db"


def made(path: Path, batches: int = 6, rows: int = 10) -> LogHub:
    """A log of two partitions with this many stored batches in each, and nothing in its WAL."""
    clock = ManualClock()
    hub = LogHub.create(path, partitions=2, clock=clock)
    for number in range(batches):
        for partition in hub.partition_ids():
            clock.advance(1)
            hub.append(table(f"{partition}/{number}", rows), partition=partition)
    hub.close()
    return hub


def change(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as connection:
        assert connection.execute(statement, values).rowcount > 0
    connection.close()


# a file of format 1


def test_a_file_of_format_1_is_refused_by_name_and_left_alone(path: Path) -> None:
    write_format_1(path)
    before = content(path)
    for ask in (LogHub, LogHub.create):
        with pytest.raises(HubError, match=r"the log has format 1, .* format 2 alone.* send its events again"):
            ask(path)
    assert content(path) == before


def content(path: Path) -> list[object]:
    with closing(sqlite3.connect(path)) as connection:
        return [*connection.execute("PRAGMA user_version"), *connection.iterdump()]


def test_a_format_that_is_not_the_tables_is_an_error(path: Path) -> None:
    write_format_1(path)
    change_format(path, 2)
    with pytest.raises(HubError, match="its tables are not those of a log"):
        LogHub(path)


def change_format(path: Path, version: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


# what the error says


def test_a_damaged_payload_is_named_after_what_is_before_it(path: Path) -> None:
    hub = made(path)
    whole = events(hub, "0")
    change(path, "UPDATE batches SET payload = zeroblob(length(payload)) WHERE partition = 0 AND first_sequence = 20")
    batches = hub.read("0", 5, 60)
    assert events_of(next(batches)) == whole[5:20]
    with pytest.raises(HubError) as caught:
        next(batches)
    assert not isinstance(caught.value, HubUnavailable)
    assert str(caught.value) == (
        f"{path}: events [20, 30) of partition 0 are damaged: something else has written to the file, or its disk is "
        "failing. Restore it from a copy, or have readers go on without them, at sequence number 30"
    )
    assert [event for batch in hub.read("0", 30, 60) for event in events_of(batch)] == whole[30:]
    assert len(events(hub, "1")) == 60


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "DELETE FROM batches WHERE partition = 0 AND first_sequence = 20",
            r"events \[20, 30\) of partition 0 are mis",
        ),
        (
            "DELETE FROM batches WHERE partition = 0 AND first_sequence = 50",
            r"events \[50, 60\) of partition 0 are mis",
        ),
        ("DELETE FROM batches WHERE partition = 0", r"events \[0, 60\) of partition 0 are missing"),
        ("UPDATE batches SET enqueued = 7 WHERE first_sequence = 20", "row of the events from 20 on of partition 0"),
        ("UPDATE batches SET last_sequence = 28 WHERE first_sequence = 20", "row of the events from 20 on of partit"),
        ("UPDATE batches SET payload = 'text' WHERE first_sequence = 20", r"events \[20, 30\) of partition 0 are dam"),
        ("UPDATE partitions SET end_sequence = 30 WHERE partition = 0", "row of partition 0 .its begin and end. is"),
        ("UPDATE partitions SET begin_sequence = 'x' WHERE partition = 0", "row of partition 0 .its begin and end. is"),
        ("DELETE FROM partitions WHERE partition = 1", "1 of its 2 partitions are there"),
        ("UPDATE log SET identity = '0f8fad5b-d9cb-469f-a165-70867728950e'", "its identity is damaged"),
        ("UPDATE log SET partitions = 1", "its identity is damaged"),
    ],
)
def test_what_was_changed_or_removed_by_others_is_named(path: Path, statement: str, said: str) -> None:
    made(path)
    change(path, statement)
    with pytest.raises(HubError, match=f"{said}.*Restore it from a copy") as caught:
        events(LogHub(path), "0")
    assert not isinstance(caught.value, HubUnavailable)


def test_nothing_is_appended_or_removed_on_the_word_of_a_damaged_row(path: Path) -> None:
    hub = made(path)
    change(path, "UPDATE partitions SET end_sequence = 30 WHERE partition = 0")
    with pytest.raises(HubError, match="row of partition 0"):
        hub.append(table("lost", 1), partition="0")
    for removed in ({"max_age": 0.0}, {"max_bytes": 0}):
        with pytest.raises(HubError, match="row of partition 0"):
            hub.retain(**removed)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*), sum(last_sequence) FROM batches").fetchone() == (12, 2 * (9 + 59) * 3)
    connection.close()


# every byte of a file


@pytest.mark.more
@pytest.mark.parametrize("share", [6, pytest.param(1, marks=pytest.mark.soak)])
def test_no_flipped_byte_alters_an_event_or_ends_the_process(path: Path, tmp_path: Path, share: int) -> None:
    """Each flip is an error in the hub's words, or harmless: in a process of its own, so that a death is seen."""
    made(path, batches=2, rows=4)
    size = path.stat().st_size
    content = path.read_bytes()
    rng = random.Random(12)
    used = [at for at in range(size) if content[at] and rng.randrange(share) == 0]
    places = sorted({*used, *rng.sample(range(size), 600 // share)})
    peers = []
    for part in range(2):
        list_of = tmp_path / f"places-{part}"
        list_of.write_text(" ".join(str(at) for at in places[part::2]))
        command = [sys.executable, flips.__file__, str(path), str(tmp_path / f"copy-{part}.db"), str(list_of)]
        peers.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    told = harmless = 0
    for peer in peers:
        out, errors = peer.communicate(timeout=2 * PATIENCE)
        assert peer.returncode == 0, f"{out[-500:]}\n{errors[-2_000:]}"
        counts = out.split()
        told, harmless = told + int(counts[0]), harmless + int(counts[1])
    assert told + harmless == len(places)
    assert told > len(used) / 2


# what somebody has made on purpose: its checksum is right


def store(path: Path, payload: bytes, rows: int) -> LogHub:
    """A log whose only batch has this payload."""
    hub = LogHub.create(path, partitions=1)
    hub.append(table("x", rows), partition="0")
    connection = sqlite3.connect(path)
    (enqueued,) = connection.execute("SELECT enqueued FROM batches").fetchone()
    row = BatchRow(0, 0, rows - 1, enqueued, zlib.crc32(payload))
    with connection:
        connection.execute(
            "UPDATE batches SET payload = ?, payload_checksum = ?, checksum = ?",
            (payload, row.payload_checksum, row.checksum),
        )
    connection.close()
    return hub


def stream(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_small_payload_never_becomes_a_large_one(path: Path, compression: str) -> None:
    body = pa.array([bytes(200 << 20)], pa.binary())
    payload = stream(pa.record_batch({"body": body}), compression)
    del body
    assert len(payload) < 1 << 20
    hub = store(path, payload, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(HubError, match=r"events \[0, 1\) of partition 0 cannot be taken from their payload.*compress"):
        events(hub, "0")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10  # kB


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (pa.record_batch({"body": [b"a", None]}), "1 without a body"),
        (pa.record_batch({"body": [b"a"]}), "it has 1 events"),
        (pa.record_batch({"body": ["a", "b"]}), "its columns are .*body: string"),
        (pa.record_batch({"partitionKey": ["a", "b"]}), "its columns are .*partitionKey"),
        (pa.record_batch({"body": pa.array([b"a", b"b"]).dictionary_encode()}), "its columns are .*dictionary"),
        (pa.record_batch([pa.array([b"a", b"b"])] * 2, ["body", "body"]), "its columns are .*body.*body"),
        (pa.record_batch({"body": [b"a", b"b"], "colour": [1, 2]}), "its columns are .*colour"),
    ],
)
def test_another_form_than_a_payload_s_is_named(path: Path, batch: pa.RecordBatch, said: str) -> None:
    with pytest.raises(HubError, match=rf"events \[0, 2\) of partition 0 cannot be taken.*{said}"):
        events(store(path, stream(batch), 2), "0")


def test_a_payload_that_is_cut_anywhere_or_has_any_byte_changed_is_an_error_or_sound() -> None:
    ((rows, buffer),) = payloads(
        checked(pa.table({"body": [b"a", b"", b"ccc"], "partitionKey": ["k", None, "\u00e9"], "publisher": ["p"] * 3}))
    )
    payload = buffer.to_pybytes()
    for cut in range(len(payload)):
        taken(payload[:cut], rows)
    rng = random.Random(7)
    for at in range(len(payload)):
        for value in {0x00, 0x7F, 0x80, 0xFF, payload[at] ^ 1 << rng.randrange(8)}:
            taken(payload[:at] + bytes([value]) + payload[at + 1 :], rows)


def taken(payload: bytes, rows: int) -> None:
    try:
        batch = decoded(payload, rows)
    except ValueError:
        return
    batch.validate(full=True)
    assert len(batch.to_pylist()) == rows
