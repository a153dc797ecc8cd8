"""Files of earlier formats, as the releases that wrote them left them: read, brought up to date, gone on with.

`files/format-1.sqlite` has a table `flights` (upsert by version, with deletes; constraints of its own) that was filled,
reset to the beginning and filled again, and a table `log` (append). `files/format-2.sqlite` has the same, of which
partition 1 was written with ranges last, and a table `plain` (upsert without an order). `files/format-3.sqlite` has a
table `named` beside, ordered by `version`. `files/format-4.sqlite` is that, brought to format 4 by its release, and a
table `entities` with memories of duplicates, some memories of keys cleared, and a rejected row dropped.
`files/format-5.sqlite` is that, brought to format 5 by its release, with a change of `entities` counted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold.errors import ConfigError
from leasehold.sinks.beside.set_aside.contract import Selection
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table import BatchResult
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold_testkit.contracts.sinks.duplicates import Sent, known_by
from leasehold_testkit.contracts.sinks.fixtures import UPSERT, Row
from leasehold_testkit.contracts.sinks.fixtures import batch as batch_of
from leasehold_testkit.contracts.sinks.fixtures import read as read_whole
from tests.sinks.events import SCHEMA, E, batch, look, run, sink
from tests.sinks.processes import FORKED, exit_code, started
from tests.sinks.ranges import of, read
from tests.sinks.sqlite_writer import apply_log, apply_with_all, killed

FILES = Path(__file__).parent / "files"
FORMATS = (1, 2, 3, 4, 5)
FORMAT_OF = "SELECT name, format FROM leasehold_table ORDER BY name"

Old = Callable[[int], Path]


@pytest.fixture
def old(tmp_path: Path) -> Old:
    def made(version: int) -> Path:
        return Path(shutil.copy(FILES / f"format-{version}.sqlite", tmp_path / f"{version}.db"))

    return made


@pytest.mark.parametrize("version", FORMATS)
def test_an_old_table_is_read_and_gone_on_with(old: Old, version: int) -> None:
    path = old(version)
    table = sink(path)
    assert table.row_count() == 2
    assert table.watermarks("h") == {"0": Watermark(5, 4), "1": Watermark(3, 5, whole=version > 1)}
    ((identity,),) = look(path, "SELECT sink_id FROM leasehold_table WHERE name = 'flights'")
    assert table.identity() == identity
    replay = [E("a", "again", 1, level=4, version=1), E("c", "older", partition="1", level=5, version=4)]
    assert table.apply(batch(replay, by_version=True, deletes=True)) == BatchResult(replayed=2)
    late = [E("d", "late", number=6, level=4, version=2), E("c", "new", 2, "1", 4, 5, version=6)]
    assert table.apply(batch(late, by_version=True, deletes=True)) == BatchResult(applied=1, superseded=1)
    assert look(path) == [("a", "first", 1), ("c", "new", 2)]


@pytest.mark.parametrize("version", FORMATS)
def test_what_an_old_table_has_rejected_is_listed_and_tried_again(old: Old, version: int) -> None:
    path = old(version)
    kept = sink(path).rejected_rows.rows(Selection(), 9)
    assert kept
    events = sorted({row.event for row in kept})
    mended = batch([E("new", f"{one}", None, one.partition, one.sequence_number, version=0) for one in events],
                   by_version=True, deletes=True)  # fmt: skip
    result = sink(path).rejected_rows.retry(mended, events)
    assert result.applied + result.superseded == len(events)
    assert sink(path).rejected_rows.rows(Selection(), 9) == []


@pytest.mark.parametrize("version", FORMATS)
def test_where_a_range_begins_is_not_held_against_an_old_table(old: Old, version: int) -> None:
    table = sink(old(version), "append", name="log")
    assert table.apply(of([read(5, 10)], [E("b", number=7)])).applied == 1
    assert table.watermarks("h") == {"0": Watermark(9, 1, whole=True)}


@pytest.mark.parametrize("version", FORMATS)
def test_rejected_rows_of_an_old_table_are_there_once(old: Old, version: int) -> None:
    """The release that wrote them doubled them at its reset."""
    path = old(version)
    before = look(path, "SELECT max(rejected_at) FROM flights_rejected")
    assert len(look(path, "SELECT * FROM flights_rejected")) == (8 if version < 3 else 4)
    table = sink(path)
    table.check(SCHEMA)
    source = None if version < 3 else "{}"
    assert look(path, "SELECT partition, sequence_number, place, source FROM flights_rejected ORDER BY 1, 2, 3") == [
        ("0", 1, 0, None),
        ("0", 3, 0, source),
        ("0", 3, 1, source),
        ("1", 3, 0, None),
    ]
    assert look(path, "SELECT DISTINCT rejected_at FROM flights_rejected") == before
    table.set_watermarks("h", {"0": Watermark(2, 7)})
    again = batch([], by_version=True, deletes=True, rejected=[E("?", number=3, level=7), E("?", number=4, level=7)])
    assert table.apply(again).rejected == 2
    assert look(path, "SELECT sequence_number, place, source FROM flights_rejected WHERE sequence_number > 2") == [
        (3, 0, None),  # of partition 1
        (3, 0, "{}"),
        (4, 0, "{}"),
    ]


@pytest.mark.parametrize("version", FORMATS)
def test_the_order_of_an_old_table_is_recorded_when_it_is_said(old: Old, version: int) -> None:
    path = old(version)
    with pytest.raises(ConfigError, match=r"by an expression that its writer did not name so far.*without sequence_by"):
        sink(path).apply(batch([E("a", number=9, level=4)], deletes=True))
    named = sink(path, sequence_by="version")
    named.apply(batch([E("a", number=9, level=4, version=9)], by_version=True, deletes=True))
    with pytest.raises(ConfigError, match="ordered by version so far"):
        sink(path, sequence_by="version + 1").apply(batch([E("a", number=10, level=4)], by_version=True, deletes=True))


@pytest.mark.parametrize("version", FORMATS[1:])
def test_an_old_table_without_an_order_says_so(old: Old, version: int) -> None:
    with pytest.raises(ConfigError, match="ordered without sequence_by so far"):
        sink(old(version), name="plain").apply(batch([E("a", number=10)], by_version=True))


@pytest.mark.parametrize("version", FORMATS[2:])
def test_an_old_table_with_an_order_says_so(old: Old, version: int) -> None:
    with pytest.raises(ConfigError, match="ordered by version so far"):
        sink(old(version), name="named", sequence_by="-version").check(SCHEMA)


@pytest.mark.parametrize("version", FORMATS[3:])
def test_what_is_kept_beside_an_old_table_is_still_known(old: Old, version: int) -> None:
    entities = SqliteSink(old(version), UPSERT)
    again = batch_of(Row("b", 9, 6), Row("c", 9, 7), ranges=[read_whole(6, 8)])
    result = entities.apply(known_by(again, Sent("y", 6, 101), Sent("new", 7, 101)))
    assert (result.applied, result.duplicates) == (1, 1)
    assert [(one.event.sequence_number, one.dropped_for) for one in entities.rejected_rows.dropped(9)] == [
        (3, "not wanted")
    ]
    assert [one.event.sequence_number for one in entities.rejected_rows.rows(Selection(), 9)] == [4]
    assert look(old(version), "SELECT hub, partition, sequence_number FROM leasehold_cleared") == [
        ("contract-hub", "0", 1)
    ]


@pytest.mark.parametrize("version", FORMATS)
def test_changes_outside_of_batches_are_counted_in_an_old_table(old: Old, version: int) -> None:
    table = sink(old(version))
    before = table.watermarks("h")["0"]
    table.forget_entity({"tail": "a"})
    assert (before.changes, table.watermarks("h")["0"].changes) == (0, 1)


@pytest.mark.parametrize("version", FORMATS)
def test_tables_are_brought_up_to_date_one_by_one(old: Old, version: int) -> None:
    """An earlier release may go on with the other table of the same file: what it reads and writes is still there."""
    path = old(version)
    sink(path).apply(batch([E("a", number=9, level=4)], by_version=True, deletes=True))
    formats = dict(look(path, FORMAT_OF))
    newest = formats["flights"]
    assert newest > version == formats["log"]
    run(
        path,
        "INSERT OR REPLACE INTO leasehold_watermark (pipeline, entity_table, hub, consumer_group, partition, "
        "sequence_number, owner_level) VALUES ('p', 'log', 'h', '$Default', '0', 7, 2)",
    )
    assert sink(path, "append", name="log").watermarks("h") == {"0": Watermark(7, 2)}
    others = ("plain", "named", "entities")
    assert dict(look(path, FORMAT_OF)) | dict.fromkeys(others, newest) == dict.fromkeys(
        ("flights", "log", *others), newest
    )


@pytest.mark.parametrize("version", FORMATS)
def test_a_new_table_in_an_old_file(old: Old, version: int) -> None:
    path = old(version)
    other = sink(path, name="other")
    assert other.apply(of([read(0, 10)], [E("x", number=3)])).applied == 1
    assert other.watermarks("h") == {"0": Watermark(9, 1, whole=True)}
    assert dict(look(path, FORMAT_OF))["log"] == version


@pytest.mark.parametrize("version", FORMATS)
def test_processes_that_bring_one_file_up_to_date_at_once(old: Old, version: int) -> None:
    path, at_work = old(version), FORKED.Barrier(2)
    both = [started(apply_log, path, at_work) for _ in range(2)]
    assert [exit_code(process) for process in both] == [0, 0]
    table = sink(path, "append", name="log")
    assert (table.row_count(), table.watermarks("h")) == (19, {"0": Watermark(19, 1)})


@pytest.mark.parametrize("version", FORMATS)
def test_a_process_that_is_killed_while_it_does_so_leaves_the_old_format(old: Old, version: int) -> None:
    path = old(version)
    before = look(path, "SELECT name, sql FROM sqlite_master ORDER BY name")
    killed("memory of keys", apply_with_all, path)
    assert look(path, "SELECT name, sql FROM sqlite_master ORDER BY name") == before
    assert {each for _, each in look(path, FORMAT_OF)} == {version}
    assert sink(path).apply(batch([E("a", number=9, level=4)], by_version=True, deletes=True)).superseded == 1
