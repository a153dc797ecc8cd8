"""The embedded log: the contract of hubs, and what the log promises beside it."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.errors import ConfigError, HubError, HubUnavailable, SchemaMismatch
from leasehold.hubs import EVENT_COLUMNS, Hub, open_hub
from leasehold.hubs.arrow import event_schema
from leasehold.hubs.log import file as tables
from leasehold.hubs.log import payload as log_payload
from leasehold.hubs.log.hub import Keyless, LogHub
from leasehold.hubs.log.partitioning import partition_of
from leasehold.hubs.log.payload import STORED_BYTES, STORED_ROWS
from leasehold.model import Event, EventPosition, PartitionProperties, PositionKind
from leasehold_testkit.clock import ManualClock
from leasehold_testkit.contracts.hubs.contracts import HubContract
from leasehold_testkit.contracts.hubs.fixtures import bodies_of, numbered, rows_of
from tests.waiting import PATIENCE

PEER = Path(__file__).with_name("peer.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hub.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hub(path: Path, clock: ManualClock) -> LogHub:
    return LogHub.create(path, partitions=2, clock=clock, timeout=0.2)  # impatient: nobody else has the file open


def bodies(*texts: str) -> pa.Table:
    return pa.table({"body": pa.array([text.encode() for text in texts], pa.binary())})


def place(hub: LogHub, partition: str = "0") -> tuple[int, int]:
    found = hub.partition_properties()[partition]
    return found.begin, found.end


def at(time: float) -> EventPosition:
    return EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=time)


class TestContract(HubContract):
    @pytest.fixture
    def new_hub(self, tmp_path: Path) -> Callable[[], Hub]:
        made: list[LogHub] = []

        def make() -> Hub:
            made.append(LogHub.create(tmp_path / f"hub-{len(made)}.db", partitions=3))
            return made[-1]

        return make

    @pytest.fixture
    def add_partition(self) -> Callable[[Hub], None]:
        def add(hub: Hub) -> None:
            assert isinstance(hub, LogHub)
            hub.grow(len(hub.partition_ids()) + 1)

        return add

    @pytest.fixture
    def remove_oldest(self) -> Callable[[Hub, str], None]:
        def remove(hub: Hub, partition: str) -> None:
            assert isinstance(hub, LogHub)
            assert hub.retain(max_bytes=3_000) > 0

        return remove

    @pytest.fixture
    def take_away(self) -> Callable[[Hub], None]:
        def take(hub: Hub) -> None:
            Path(hub.url.removeprefix("log:///")).unlink()

        return take


# making, opening and growing


def test_a_log_is_never_made_by_opening_it(path: Path) -> None:
    asks: tuple[Callable[[], Hub], ...] = (lambda: open_hub(f"log:///{path}"), lambda: LogHub(path))
    for ask in asks:
        with pytest.raises(HubUnavailable, match=rf"no log at {path}.*leasehold init .*leasehold send"):
            ask()
        assert not path.exists()


def test_create_is_idempotent_grows_and_never_shrinks(path: Path) -> None:
    made = LogHub.create(path)
    assert made.partition_ids() == ("0", "1", "2", "3")
    made.append(bodies("a"), partition="3")
    for partitions, count in ((None, 4), (4, 4), (6, 6), (None, 6)):
        again = LogHub.create(path, partitions=partitions)
        assert (again.identity, len(again.partition_ids())) == (made.identity, count)
    for shrink in (lambda: LogHub.create(path, partitions=5), lambda: made.grow(5)):
        with pytest.raises(ConfigError, match=r"partitions = 5: the log has 6, and partitions are never removed"):
            shrink()
    assert bodies_of(made, "3") == [b"a"]
    with pytest.raises(ConfigError, match="1 to 1,024"):
        LogHub.create(path.with_name("other.db"), partitions=0)
    assert not path.with_name("other.db").exists()


def test_created_by_many_at_once_it_is_one_log(path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda count: LogHub.create(path, partitions=8).identity, range(8)))
    assert len(set(made)) == 1
    assert len(LogHub(path).partition_ids()) == 8


def test_a_log_knows_when_it_was_made(path: Path) -> None:
    clock = ManualClock(wall=1_800_000_000.25)
    made = LogHub.create(path, clock=clock)
    assert made.created == 1_800_000_000.25
    clock.advance(3_600)
    assert LogHub.create(path, partitions=8, clock=clock).created == made.created
    beside = LogHub.create(path.with_name("beside.db"), clock=ManualClock(wall=1_800_000_000.25))
    assert UUID(beside.identity).version == 7
    assert beside.identity != made.identity


def test_two_paths_to_one_log_are_one_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = LogHub.create(tmp_path / "a folder" / "h\u00fcb #1%.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "a folder" / "h\u00fcb #1%.db")
    relative = open_hub("log:///a%20folder/h%C3%BCb%20%231%25.db", base=tmp_path)
    monkeypatch.chdir("/")
    for other in (relative, open_hub(made.url), open_hub(relative.url), LogHub(tmp_path / "link.db")):
        assert other.identity == made.identity
        assert other.consumer_group("g") == made.consumer_group("g")
    assert str(made.consumer_group("g")) == f"log/{made.identity}/g"


def test_files_that_are_no_logs_are_refused_and_left_alone(tmp_path: Path) -> None:
    text, other, empty = tmp_path / "text", tmp_path / "other.db", tmp_path / "empty"
    text.write_text("these are not the bytes of a database, but they are many enough to be looked at" * 20)
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    empty.touch()
    for path, error in ((text, HubError), (other, HubError), (tmp_path, HubUnavailable)):
        content = path.read_bytes() if path.is_file() else None
        asks: tuple[Callable[[Path], LogHub], ...] = (lambda path: LogHub(path), lambda path: LogHub.create(path))
        for ask in asks:
            with pytest.raises(error, match=str(path)) as caught:
                ask(path)
            assert isinstance(caught.value, HubUnavailable) == (error is HubUnavailable)
        assert (path.read_bytes() if path.is_file() else None) == content
    with pytest.raises(HubUnavailable, match="no log at"):
        LogHub(empty)
    assert LogHub.create(empty, partitions=1).partition_ids() == ("0",)


def test_a_newer_format_is_refused(path: Path, hub: LogHub) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    for ask in (LogHub, LogHub.create):
        with pytest.raises(HubError, match=r"format 3, and this release knows formats up to 2.*--upgrade"):
            ask(path)


def test_a_log_made_anew_in_its_place_is_another(path: Path, hub: LogHub) -> None:
    hub.append(bodies("old"), partition="0")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    with pytest.raises(HubUnavailable):
        hub.append(bodies("lost"), partition="0")
    new = LogHub.create(path, partitions=2)
    assert new.identity != hub.identity
    with pytest.raises(HubError, match="was replaced by another log"):
        hub.append(bodies("strayed"), partition="0")
    assert bodies_of(new, "0") == []


def test_a_file_that_stays_locked_is_unavailable(path: Path, hub: LogHub) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(HubUnavailable, match="locked"):
        hub.append(bodies("a"), partition="0")
    assert place(hub) == (0, 0)
    other.execute("ROLLBACK")
    other.close()
    assert hub.append(bodies("a"), partition="0") == range(1)


# appending


def test_sequence_numbers_start_at_0_and_go_on(hub: LogHub) -> None:
    assert hub.append(bodies("a", "b"), partition="0") == range(2)
    assert hub.append(bodies().combine_chunks(), partition="0") == range(2, 2)
    assert hub.append(bodies("c").to_batches()[0], partition="0") == range(2, 3)
    assert hub.append(bodies("d"), partition="1") == range(1)
    assert [(row["sequenceNumber"], row["offset"], row["body"]) for row in rows_of(hub, "0")] == [
        (0, "0", b"a"),
        (1, "1", b"b"),
        (2, "2", b"c"),
    ]
    assert hub.send_table(bodies()) == 0


def test_what_sends_a_table_is_told_of_each_transaction(hub: LogHub, path: Path) -> None:
    told: list[int] = []
    ends: list[int] = []

    def appended(count: int) -> None:
        told.append(count)
        ends.append(sum(end for _, end in (place(LogHub(path), partition) for partition in "01")))

    assert hub.send_table(bodies("a", "b", "c"), appended=appended) == 3
    assert (sorted(told), ends[-1]) == ([1, 2], 3)
    assert ends[0] == told[0], "it is on disk by then"
    hub.send_table(bodies(*["x"] * (STORED_ROWS + 1)), partition="1", appended=appended)
    assert told[2:] == [STORED_ROWS, 1]


def test_an_append_is_one_transaction_and_on_disk(hub: LogHub) -> None:
    statements = _traced(hub, lambda: hub.append(bodies("a", "b"), partition="0"))
    assert [text.split()[0] for text in statements] == ["PRAGMA", "BEGIN", "SELECT", "INSERT", "UPDATE", "COMMIT"]
    assert statements[0] == "PRAGMA synchronous = FULL"


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"key": pa.array(["a"])}, r"columns key are unknown.*body \(binary, required"),
        ({"partitionKey": pa.array(["a"])}, r"columns are partitionKey\. A log takes"),
        ({"body": pa.array(["text"])}, "column body is string"),
        ({"body": pa.array([1])}, "column body is int64"),
        ({"body": pa.array([b"a", None], pa.binary())}, "column body is null in 1 of 2 rows"),
        ({"body": pa.array([b"a"]), "partitionKey": pa.array([7])}, "column partitionKey is int64"),
        ({"body": pa.array([b"a"]), "properties": pa.array(["{}"])}, "column properties is string"),
        ({"body": pa.array([b"a"]), "offset": pa.array(["0"])}, "columns offset are unknown"),
    ],
)
def test_columns_that_do_not_fit(hub: LogHub, columns: dict[str, pa.Array], named: str) -> None:
    for ask in (lambda table: hub.append(table, partition="0"), hub.send_table):
        with pytest.raises(SchemaMismatch, match=named):
            ask(pa.table(columns))
    assert place(hub) == (0, 0)


def test_events_that_do_not_fit(hub: LogHub) -> None:
    for event in (Event(None), Event(17), Event(b"", partition_key=3), Event(b"", properties={"a": 1})):  # type: ignore[arg-type, dict-item]
        with pytest.raises(SchemaMismatch):
            hub.send([event])
    assert place(hub) == (0, 0)


def test_other_forms_of_the_types_are_taken(hub: LogHub) -> None:
    table = pa.table(
        {
            "publisher": pa.array(["p", "p", None], pa.large_string()),
            "body": pa.array([b"a", b"b", b"c"], pa.large_binary()),
            "partitionKey": pa.array(["k", None, "k"]).dictionary_encode(),
            "properties": pa.array([[("x", "1")], None, []], pa.map_(pa.string(), pa.large_string())),
        }
    )
    hub.append(table.slice(0, 2), partition="0")
    hub.append(pa.concat_tables([table.slice(2), table]), partition="0")
    hub.append(pa.table({"body": pa.array([b"d"]), "publisher": pa.nulls(1), "properties": pa.nulls(1)}), partition="0")
    expected = [("a", "k", "p", {"x": "1"}), ("b", None, "p", {}), ("c", "k", None, {})]
    assert [
        (row["body"].decode(), row["partitionKey"], row["publisher"], dict(row["properties"]))
        for row in rows_of(hub, "0")
    ] == [*expected[:2], expected[2], *expected, ("d", None, None, {})]
    assert all(batch.schema == event_schema() for batch in hub.read("0", 0, 7, batch_rows=2))


@pytest.mark.more
def test_a_large_batch_is_one_transaction_of_several_rows(path: Path, hub: LogHub) -> None:
    many = pa.table({"body": pa.array([b"x"] * (2 * STORED_ROWS + 1))})
    large = pa.table({"body": pa.array([bytes(STORED_BYTES // 3)] * 5)})
    for partition, table in (("0", many), ("1", large)):
        statements = _traced(hub, lambda t=table, p=partition: hub.append(t, partition=p))  # type: ignore[misc]
        assert statements.count("COMMIT") == 1
    rows = _stored(path)
    assert [(p, first, last) for p, first, last, *_ in rows][:3] == [
        (0, 0, 9_999),
        (0, 10_000, 19_999),
        (0, 20_000, 20_000),
    ]
    assert [last - first + 1 for p, first, last, *_ in rows if p == 1] == [2, 1, 2]
    assert sum(batch.num_rows for batch in hub.read("1", 0, 5)) == 5


def test_an_event_that_is_too_large_is_refused(hub: LogHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_payload, "LARGEST_EVENT", 100_000)
    monkeypatch.setattr(log_payload, "STORED_BYTES", 10_000)
    table = pa.table({"body": pa.array([bytes(5_000), bytes(100_001), b"a"])})
    with pytest.raises(SchemaMismatch, match=r"100,0.. bytes; a log takes up to 100,000"):
        hub.append(table, partition="0")
    assert place(hub) == (0, 0)


def test_a_large_table_is_cut_by_bytes_and_stays_in_order(hub: LogHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_payload, "SENT_BYTES", 1_000)
    keys = [f"{number % 3}" for number in range(200)]
    table = pa.table({"body": pa.array([b"%d" % n for n in range(200)]), "partitionKey": pa.array(keys)})
    assert hub.send_table(table) == 200
    for key in "012":
        seen = [int(r["body"]) for p in hub.partition_ids() for r in rows_of(hub, p) if r["partitionKey"] == key]
        assert seen == list(range(int(key), 200, 3))


def test_many_small_chunks_are_stored_as_one(path: Path, hub: LogHub) -> None:
    hub.append(pa.concat_tables([bodies(str(number)) for number in range(100)]), partition="0")
    assert [(first, last) for _, first, last, *_ in _stored(path)] == [(0, 99)]


def test_enqueued_times_never_go_back(hub: LogHub, clock: ManualClock) -> None:
    start = clock.wall()
    for jump in (0.0, 5.000001, -3600.0, 4.0, 6.0):
        clock.set_wall(start + jump)
        hub.append(bodies("a", "b"), partition="0")
    times = [row["enqueuedTime"].timestamp() - start for row in rows_of(hub, "0")]
    assert [round(time, 6) for time in times[::2]] == [0, 5.000001, 5.000001, 5.000001, 6]
    assert times[::2] == times[1::2]


def test_a_start_by_time(hub: LogHub, clock: ManualClock) -> None:
    start = clock.wall()
    for _ in range(3):
        hub.append(bodies("a", "b"), partition="0")
        clock.advance(10)
    assert [hub.resolve("0", at(start + late)) for late in (-1, 0, 0.000001, 10, 10.5, 20, 21)] == [0, 0, 2, 2, 4, 4, 6]
    assert hub.resolve("1", at(start)) == 0
    hub.retain(max_age=25)
    assert hub.resolve("0", at(start)) == 2


# partitioning


def test_the_hash_of_a_key_is_the_same_in_every_release() -> None:
    assert [partition_of(key, 1_000) for key in ("", "a", "N14228", "schl\u00fcssel", "\U0001f511")] == [
        *(876, 343, 688, 426, 195)
    ]


def test_a_table_goes_where_its_events_would(tmp_path: Path) -> None:
    keys = [None if number % 5 == 0 else f"k{number % 13}" for number in range(500)]
    events = [Event(str(number).encode(), partition_key=key) for number, key in enumerate(keys)]
    table = pa.table({"body": pa.array([e.body for e in events]), "partitionKey": pa.array(keys)})
    for keyless in Keyless:
        one = LogHub.create(tmp_path / f"{keyless}-one.db", partitions=3)
        two = LogHub.create(tmp_path / f"{keyless}-two.db", partitions=3)
        assert one.send(events, keyless=keyless) == two.send_table(table, keyless=keyless) == 500
        for partition in one.partition_ids():
            assert bodies_of(one, partition) == bodies_of(two, partition)
            for row in rows_of(one, partition):
                assert row["partitionKey"] is None or int(partition) == partition_of(row["partitionKey"], 3)
        without = [[r["body"] for r in rows_of(one, p) if r["partitionKey"] is None] for p in one.partition_ids()]
        if keyless is Keyless.ONE_PARTITION:
            assert [len(part) for part in without] == [100 * (p == partition_of("", 3)) for p in range(3)]
        else:
            assert [len(part) for part in without] == [34, 33, 33]


def test_keyless_events_of_a_table_without_keys_keep_their_order_in_one_partition(hub: LogHub) -> None:
    for first in range(0, 90, 30):
        hub.send_table(bodies(*(str(n) for n in range(first, first + 30))), keyless=Keyless.ONE_PARTITION)
    home = str(partition_of("", 2))
    assert bodies_of(hub, home) == [b"%d" % number for number in range(90)]


def test_producers_of_one_event_each_do_not_all_begin_at_0(path: Path, hub: LogHub) -> None:
    for _ in range(6):
        LogHub(path).send(numbered(1))
    assert [place(hub, partition) for partition in hub.partition_ids()] == [(0, 3), (0, 3)]


def test_a_large_send_is_a_transaction_for_each_partition_and_ten_thousand_events(path: Path, hub: LogHub) -> None:
    hub.send(Event(b"", partition_key=str(number % 50)) for number in range(25_000))
    assert sum(end for _, end in (place(hub, "0"), place(hub, "1"))) == 25_000
    assert len(_stored(path)) == 6
    hub.send_table(pa.table({"body": pa.array([b""] * 25_000)}), partition="0")
    assert [row[2] - row[1] + 1 for row in _stored(path)][-3:] == [10_000, 10_000, 5_000]


# reading


SIZES = st.lists(st.integers(1, 40), max_size=12)


@settings(max_examples=40, deadline=None)
@given(
    sizes=SIZES,
    start=st.integers(-3, 250),
    length=st.integers(-3, 250),
    batch_rows=st.integers(1, 60),
    columns=st.lists(st.sampled_from(EVENT_COLUMNS), min_size=1, unique=True),
    chunk=st.integers(1, 4),
)
def test_any_range_reads_as_a_list_would(
    sizes: list[int], start: int, length: int, batch_rows: int, columns: list[str], chunk: int
) -> None:
    clock = ManualClock()
    model: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_READ_BATCHES", chunk)
        hub = LogHub.create(Path(folder) / "hub.db", partitions=1, clock=clock)
        for index, size in enumerate(sizes):
            clock.advance(1.5)
            events = [_event(index, len(model) + row) for row in range(size)]
            hub.send(events, partition="0")
            model += [_row(event, len(model) + row, clock, hub) for row, event in enumerate(events)]
        batches = list(hub.read("0", start, start + length, columns=columns, batch_rows=batch_rows))
        expected = [{name: row[name] for name in columns} for row in model[max(0, start) : max(0, start + length)]]
        assert pa.Table.from_batches(batches, event_schema(columns)) == pa.Table.from_pylist(
            expected, event_schema(columns)
        )
        assert all(batch.num_rows == batch_rows for batch in batches[:-1])
        for batch in batches:
            batch.validate(full=True)
        hub.close()


def _event(index: int, number: int) -> Event:
    """Events whose batches differ in which columns they have."""
    return Event(
        b"%d" % number * (index % 3),
        partition_key=f"\u00e9{number}" if index % 2 and number % 3 else None,
        publisher="p" if index % 4 == 3 else None,
        properties={"n": str(number)} if index % 3 == 1 else {},
    )


def _row(event: Event, number: int, clock: ManualClock, hub: LogHub) -> dict[str, object]:
    return {
        "body": event.body,
        "partition": "0",
        "offset": str(number),
        "sequenceNumber": number,
        "enqueuedTime": round(clock.wall() * 1e6),
        "publisher": event.publisher,
        "partitionKey": event.partition_key,
        "properties": dict(event.properties),
        "systemProperties": {},
        "hub": hub.identity,
    }


def test_what_is_asked_is_checked_before_the_first_batch(hub: LogHub) -> None:
    with pytest.raises(ConfigError, match="batch_rows = 0"):
        hub.read("0", 0, 1, batch_rows=0)
    with pytest.raises(ConfigError, match="colour"):
        hub.read("0", 0, 1, columns=["colour"])
    for columns in ([], ["body", "body"]):
        with pytest.raises(ConfigError, match="at least one column, and none twice"):
            hub.read("0", 0, 1, columns=columns)
    for partition in ("2", "-1", "00", "+0", " 0", "\u0660", "x", "9" * 5000):
        with pytest.raises(ConfigError, match="the log has partitions 0 to 1"):
            hub.read(partition, 0, 1)
        with pytest.raises(ConfigError, match="the log has partitions 0 to 1"):
            hub.append(bodies("a"), partition=partition)


def test_reading_beyond_the_end_ends_there(hub: LogHub) -> None:
    hub.append(bodies("a", "b"), partition="0")
    assert [row["body"] for row in rows_of(hub, "0", 1, 10**12)] == [b"b"]
    assert rows_of(hub, "0", 2, 10**12) == rows_of(hub, "0", 50, 60) == []


def test_a_reader_that_pauses_holds_nothing_up(path: Path, hub: LogHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_READ_BATCHES", 2)
    for number in range(10):
        hub.append(bodies(str(number)), partition="0")
    reader = hub.read("0", 0, 11, batch_rows=1)
    first = next(reader).column("body").to_pylist()
    hub.append(bodies("10"), partition="0")
    other = sqlite3.connect(path, isolation_level=None)
    busy, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    other.close()
    assert busy == 0
    rest = [body for batch in reader for body in batch.column("body").to_pylist()]
    assert first + rest == [b"%d" % number for number in range(11)]


def test_partitions_and_events_may_come_while_reading(hub: LogHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_READ_BATCHES", 1)
    hub.append(bodies("a"), partition="0")
    hub.append(bodies("b"), partition="0")
    reader = hub.read("0", 0, 2, batch_rows=1)
    assert next(reader).num_rows == 1
    hub.grow(5)
    hub.append(bodies("c"), partition="4")
    hub.append(bodies("d"), partition="0")
    assert [batch.column("body").to_pylist() for batch in reader] == [[b"b"]]
    assert place(hub, "4") == (0, 1)


# retention


def test_retention_by_age_takes_whole_batches_and_keeps_the_ends(hub: LogHub, clock: ManualClock) -> None:
    for partition in ("0", "0", "1", "0"):
        hub.append(bodies("a", "b", "c"), partition=partition)
        clock.advance(10)
    assert hub.retain(max_age=1_000) == 0
    assert hub.retain(max_age=15) == 9
    assert hub.partition_properties() == {"0": PartitionProperties("0", 6, 9), "1": PartitionProperties("1", 3, 3)}
    assert [row["sequenceNumber"] for row in rows_of(hub, "0", 0, 9)] == [6, 7, 8]
    assert hub.retain(max_age=0) == 3
    assert (place(hub, "0"), place(hub, "1")) == ((9, 9), (3, 3))
    assert hub.append(bodies("d"), partition="1") == range(3, 4)
    assert (rows_of(hub, "1", 0, 4)[0]["sequenceNumber"], place(hub, "1")) == (3, (3, 4))


def test_retention_by_size_takes_the_oldest_of_all_partitions(path: Path, hub: LogHub) -> None:
    for number in range(300):
        hub.append(pa.table({"body": pa.array([bytes(50_000)])}), partition=str(number % 2))
    size = path.stat().st_size
    assert hub.retain(max_bytes=10**9) == 0
    assert 295 <= hub.retain(max_bytes=200_000) < 300
    begins = [place(hub, partition)[0] for partition in ("0", "1")]
    assert abs(begins[0] - begins[1]) <= 1
    assert sum(payload for *_, payload in _stored(path)) <= 200_000
    assert hub.retain(max_bytes=200_000) == 0
    assert path.stat().st_size < size / 10
    assert hub.retain(max_bytes=0) + sum(begins) == 300
    assert (place(hub, "0"), place(hub, "1")) == ((150, 150), (150, 150))


def test_retention_while_reading_leaves_out_what_is_gone(hub: LogHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_READ_BATCHES", 2)
    for number in range(10):
        hub.append(bodies(*[str(number)] * 100), partition="0")
    reader = hub.read("0", 50, 1_000, columns=["sequenceNumber"], batch_rows=300)
    hub_size = hub.retain(max_bytes=1)
    assert hub_size == 1_000
    assert list(reader) == []
    for number in range(10):
        hub.append(bodies(*[str(number)] * 100), partition="1")
    reader = hub.read("1", 50, 1_000, columns=["sequenceNumber"], batch_rows=100)
    seen = next(reader).column("sequenceNumber").to_pylist()
    hub.retain(max_bytes=3_000)
    begin, _ = place(hub, "1")
    assert begin > 200
    batches = [batch.column("sequenceNumber").to_pylist() for batch in reader]
    # What was read ahead is given; then comes what is left, and no batch has a gap in it.
    assert [*seen, *itertools.chain(*batches)] == [*range(50, 200), *range(begin, 1_000)]
    assert all(batch == list(range(batch[0], batch[0] + len(batch))) for batch in batches)


def test_retention_must_be_told_what_to_keep(hub: LogHub) -> None:
    with pytest.raises(ConfigError, match="neither max_age nor max_bytes"):
        hub.retain()
    with pytest.raises(ConfigError, match="max_age = -1"):
        hub.retain(max_age=-1)


# several threads and processes


def test_threads_share_one_object(hub: LogHub) -> None:
    patient = LogHub(Path(hub.url.removeprefix("log:///")), timeout=PATIENCE)

    def work(name: int) -> int:
        for number in range(15):
            patient.append(bodies(*(f"{name} {number} {row}" for row in range(4))), partition="0")
            rows = rows_of(patient, "0")
            assert [row["sequenceNumber"] for row in rows] == list(range(len(rows)))
        return patient.send(numbered(10))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [10] * 4
    texts = [row["body"].decode().split() for row in rows_of(patient, "0")]
    whole = [tuple(map(int, text)) for text in texts if len(text) == 3]
    for name in range(4):
        assert [rest for owner, *rest in whole if owner == name] == [[n, row] for n in range(15) for row in range(4)]
    assert [first[:2] for first in whole[::4]] == [last[:2] for last in whole[3::4]]
    assert sum(place(patient, partition)[1] for partition in ("0", "1")) == 4 * (15 * 4 + 10)


@pytest.mark.more
def test_several_processes_append_and_read_at_once(path: Path, hub: LogHub) -> None:
    producers, batches, rows = 3, 150, 20
    expected = producers * batches * rows
    peers = [_start("produce", path, f"p{n}", batches, rows) for n in range(producers)]
    peers += [_start("follow", path, expected) for _ in range(2)]
    _begin(peers)
    said = []
    for peer in peers:
        out, errors = peer.communicate(timeout=PATIENCE)
        assert peer.returncode == 0, errors
        said.append(out.splitlines()[-1])
    assert said[producers:] == [str([(f"p{n}", batches * rows) for n in range(producers)])] * 2
    assert sum(place(hub, partition)[1] for partition in hub.partition_ids()) == expected


@pytest.mark.more
def test_a_producer_killed_while_appending_leaves_whole_batches(path: Path, hub: LogHub) -> None:
    rows = 500
    acknowledged: dict[str, int] = {}
    peers = {f"p{n}": _start("produce", path, f"p{n}", 0, rows) for n in range(3)}
    _begin(peers.values())
    for index, (name, peer) in enumerate(peers.items()):
        assert peer.stdout is not None
        for _ in range(3 + 7 * index):
            acknowledged[name] = int(peer.stdout.readline())
        os.kill(peer.pid, signal.SIGKILL)
        for line in peer.communicate()[0].splitlines():
            acknowledged[name] = int(line)
    batches: dict[str, list[int]] = {name: [] for name in peers}
    for partition in hub.partition_ids():
        found = rows_of(hub, partition)
        assert [row["sequenceNumber"] for row in found] == list(range(place(hub, partition)[1]))
        for start in range(0, len(found), rows):
            whole = [row["body"].decode().split() for row in found[start : start + rows]]
            name, batch, _ = whole[0]
            assert whole == [[name, batch, str(row)] for row in range(rows)]
            batches[name].append(int(batch))
    for name, seen in batches.items():
        assert sorted(seen) == list(range(len(seen)))
        assert len(seen) - 1 >= acknowledged[name]
    assert len(hub.append(bodies("after"), partition="0")) == 1


def _start(role: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(PEER), role, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _begin(peers: Iterable[subprocess.Popen[str]]) -> None:
    for wait in (True, False):
        for peer in peers:
            assert peer.stdout is not None
            assert peer.stdin is not None
            if wait:
                assert peer.stdout.readline() == "ready\n"
            else:
                peer.stdin.write("go\n")
                peer.stdin.flush()


def _stored(path: Path) -> list[tuple[int, int, int, int]]:
    """Partition, first and last sequence number and payload size of each stored batch, as appended."""
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT partition, first_sequence, last_sequence, length(payload) FROM batches ORDER BY batch"
    ).fetchall()
    connection.close()
    return rows


def _traced(hub: LogHub, action: Callable[[], object]) -> list[str]:
    """The statements that an action runs in this thread."""
    statements: list[str] = []
    with hub._file._file.reading() as connection:
        connection.set_trace_callback(statements.append)
    del statements[:]
    action()
    with hub._file._file.reading() as connection:
        connection.set_trace_callback(None)
    return statements[:-2]
