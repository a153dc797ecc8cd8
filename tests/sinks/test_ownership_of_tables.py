"""Levels that are too low, whose table it is, and the file it is in."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.errors import (
    AlreadyInUse,
    OwnerLevelWentBack,
    SchemaMismatch,
    SinkError,
    SinkUnavailable,
    UsageError,
)
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import RefusedRange, TableSpec, Totals
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold.sinks.sqlite.tables import FORMAT
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import SCHEMA, E, batch, look, run, sink


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


# Levels that are too low


def test_a_zombie_is_dropped_with_a_warning_where_nobody_can_be_asked(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = sink(path)
    table.apply(batch([E("a", level=3)]))
    result = table.apply(batch([E("z", number=1, level=2), E("b", partition="1", level=1)]))
    assert result == one_row_each(applied=1, refused_ranges=(RefusedRange("h", "0", 2, 3, 1),))
    all_refused = batch([E("z", number=1, level=2)], rejected=[E("y", number=2, level=1)])
    assert table.apply(all_refused).refused == 2
    assert "dropped 1 rows of partition 0" in caplog.text
    assert caplog.records[-1].levelno == logging.WARNING


def test_a_zombie_is_told_from_a_wiped_store_and_nobody_waits_meanwhile(path: Path) -> None:
    table = sink(path)
    table.apply(batch([E("a", level=3), E("b", partition="1", level=3)]))
    asked = []

    def level_of(hub: str, partition: str) -> int | None:
        asked.append((hub, partition))
        sink(path, name="other").apply(batch([E("x", number=len(asked))]))  # no lock is held
        return 4

    late = batch(
        [E("a", "late", number=1, level=2), E("b", "late", partition="1", number=1, level=2), E("c", partition="2")]
    )
    result = table.apply(late, level_of)
    assert (result.applied, result.refused) == (1, 2)
    assert asked == [("h", "0"), ("h", "1")]
    with pytest.raises(OwnerLevelWentBack, match="--to sink"):
        table.apply(batch([E("a", number=1, level=2), E("d", partition="2", number=1)]), lambda hub, partition: 2)
    assert table.watermarks("h")["2"] == Watermark(0, 1)


def test_an_owner_that_comes_while_the_store_is_asked_is_asked_about_too(path: Path) -> None:
    table = sink(path)
    table.apply(batch([E("a", level=3)]))
    asked = []

    def level_of(hub: str, partition: str) -> int | None:
        asked.append(partition)
        sink(path).apply(batch([E("b", "theirs", partition="1", level=9)]))
        return 9

    late = batch([E("a", "late", number=1, level=2), E("b", "late", partition="1", number=1, level=2)])
    assert table.apply(late, level_of).refused == 2
    assert asked == ["0", "1"]
    assert look(path) == [("a", "ok", None), ("b", "theirs", None)]


# Whose table it is


def test_another_pipeline_mode_or_key_is_refused(path: Path) -> None:
    mine = sink(path)
    identity = mine.identity()
    assert sink(path).identity() == identity
    assert sink(path, name="FLIGHTS").identity() == identity
    assert sink(path, name="other").identity() != identity
    for settings, words in (
        ({"pipeline": "q"}, "belongs to the pipeline 'p', and 'q'"),
        ({"mode": "append"}, "mode upsert and keys tail.*mode append and keys none"),
        ({"keys": ("tail", "slot")}, "keys slot, tail"),
    ):
        other = sink(path, **{"mode": "upsert", **settings})  # type: ignore[arg-type]
        for use in (other.identity, lambda it=other: it.apply(batch([E("a")])), lambda it=other: it.watermarks("h")):
            with pytest.raises(AlreadyInUse, match=words):
                use()
    with pytest.raises(AlreadyInUse, match="beside"):
        sink(path, "append", name="flights_rejected").identity()
    sink(path, "append", name="late_rejected").identity()
    with pytest.raises(AlreadyInUse, match="beside"):
        sink(path, name="late").identity()


def test_a_later_format_is_refused(path: Path) -> None:
    sink(path).identity()
    run(path, "UPDATE leasehold_table SET format = format + 1")
    with pytest.raises(
        SinkError, match=rf"the table flights has format {FORMAT + 1}, .* formats up to {FORMAT}: .*upgrade"
    ):
        sink(path).identity()


def test_a_table_of_other_columns_in_the_place_of_the_rejected_ones(path: Path) -> None:
    run(path, "CREATE TABLE flights_rejected (what TEXT)")
    with pytest.raises(SchemaMismatch, match="Rename it"):
        sink(path).check(SCHEMA)


def test_consumer_groups_have_watermarks_of_their_own(path: Path) -> None:
    sink(path).apply(batch([E("a")]))
    assert sink(path, consumer_group="other").watermarks("h") == {}


def test_watermarks_can_be_set_by_a_person(path: Path) -> None:
    table = sink(path)
    table.apply(batch([E("a", "x"), E("a", "y", number=1)]))
    table.set_watermarks("h", {"0": Watermark(-1, 5), "7": Watermark(9, 1)})
    assert table.watermarks("h") == {"0": Watermark(-1, 5), "7": Watermark(9, 1)}
    assert table.apply(batch([E("a", "x", level=6), E("a", "y", number=1, level=6)])).applied == 2
    assert look(path) == [("a", "y", None)]


def test_a_table_that_was_dropped_is_not_silently_made_anew(path: Path) -> None:
    table = sink(path)
    table.apply(batch([E("a", version=3)], by_version=True))
    run(path, "DROP TABLE flights")
    for it in (table, sink(path)):
        with pytest.raises(SinkError, match=r"reset PIPELINE\.toml --to earliest"):
            it.apply(batch([E("b", number=1)]))
        with pytest.raises(SinkError, match="flights has been dropped"):
            it.compare(None)
    # A reset of some partitions would make it anew without the events of the others.
    table.check_watermarks("h", {"0": Watermark(-1, 1)})
    with pytest.raises(SinkError, match="flights has been dropped"):
        table.check_watermarks("h", {"0": Watermark(-1, 1)}, is_part=True)
    table.set_watermarks("h", {"0": Watermark(-1, 1)})
    assert table.apply(batch([E("a", "again", version=1)], by_version=True)).applied == 1
    run(path, "DROP TABLE leasehold_key_flights")
    with pytest.raises(SinkError, match="leasehold_key_flights has been dropped"):
        table.apply(batch([E("b", number=1)]))


# The file


def test_a_file_that_is_locked_or_no_database(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    spec = TableSpec(name="flights", pipeline="p", keys=("tail",))
    table = SqliteSink(path, spec)
    hasty = SqliteSink(path, spec, timeout=0.05)  # impatient: for the batch that is blocked for good
    table.check(SCHEMA)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkUnavailable, match="locked"):
            hasty.apply(batch([E("a")]))
        other.execute("ROLLBACK")
    assert table.apply(batch([E("a")])).applied == 1
    (tmp_path / "text").write_text("not a database, and longer than its header would be\n" * 9)
    with pytest.raises(SinkError, match="not a database"):
        SqliteSink(tmp_path / "text", spec).identity()
    (tmp_path / "file").touch()
    with pytest.raises(SinkUnavailable):
        SqliteSink(tmp_path / "file" / "t.db", spec).identity()
    with pytest.raises(SinkUnavailable):
        SqliteSink(tmp_path, spec).identity()


def test_an_error_of_a_trigger_rejects_its_row_and_is_not_waited_out(path: Path) -> None:
    table = sink(path)
    run(
        path,
        "CREATE TABLE flights (tail TEXT PRIMARY KEY, status TEXT, slot INTEGER)",
        "CREATE TRIGGER t AFTER INSERT ON flights BEGIN SELECT json(new.status); END",
    )
    assert table.apply(batch([E("a", "{"), E("b", "{}", number=1)])) == one_row_each(applied=1, rejected=1)
    assert look(path) == [("b", "{}", None)]


def test_totals_add_up() -> None:
    result = one_row_each(1, 2, (RefusedRange("h", "0", 1, 2, 3), RefusedRange("h", "1", 1, 2, 4)), 5, 6)
    twice = Totals(applied=2, superseded=10, rejected=12, used=24, refused=14, replayed=4, batches=2)
    assert Totals().with_batch(result).with_batch(result) == twice
    assert (twice.read, twice.rows) == (42, 24)


def test_a_reset_that_wakes_up_too_late_changes_nothing(path: Path) -> None:
    table = sink(path, "append")
    table.apply(batch([E("a", level=7), E("b", partition="1", level=5)]))
    with pytest.raises(UsageError, match=r"partition 0.*level 6, and level 7 has been here"):
        table.set_watermarks("h", {"1": Watermark(-1, 6), "0": Watermark(-1, 6)})
    assert table.watermarks("h") == {"0": Watermark(0, 7), "1": Watermark(0, 5)}


def test_a_second_consumer_group_of_a_hub_is_refused(path: Path) -> None:
    sink(path, consumer_group="one").apply(batch([E("a", "old"), E("a", "new", number=1)]))
    other = sink(path, consumer_group="two")
    with pytest.raises(AlreadyInUse, match=r"by the consumer group 'one', and 'two' would apply the same events"):
        other.apply(batch([E("a", "old")]))
    with pytest.raises(AlreadyInUse):
        other.set_watermarks("h", {"0": Watermark()})
    assert look(path) == [("a", "new", None)]
    other.apply(batch([E("b", hub="another")]))


def test_a_database_that_another_instance_made_anew_is_not_gone_on_in(path: Path) -> None:
    table = sink(path, "append")
    table.apply(batch([E("a"), E("b", number=1)]))
    for each in path.parent.glob("t.db*"):
        each.unlink()
    with pytest.raises(SinkUnavailable):
        table.apply(batch([E("c", number=2)]))
    started_meanwhile = sink(path, "append")
    assert started_meanwhile.watermarks("h") == {}
    with pytest.raises(AlreadyInUse, match="not the one that this instance has written to"):
        table.apply(batch([E("c", number=2)]))
    assert started_meanwhile.row_count() == 0


@pytest.mark.parametrize("name", ["excluded", "Excluded", "leasehold row", "select", 'a"b'])
def test_tables_of_any_name_are_updated(path: Path, name: str) -> None:
    table = sink(path, name=name)
    table.apply(batch([E("a", "x")]))
    table.apply(batch([E("a", "y", number=1)]))
    quoted = '"' + name.replace('"', '""') + '"'
    assert look(path, f"SELECT tail, status FROM {quoted}") == [("a", "y")]


def test_a_refusal_of_the_current_owner_does_not_wear_off(path: Path) -> None:
    """Each claim after a wipe raises the level by one: at the third it is the table's."""
    table = sink(path)
    table.apply(batch([E("a", number=9, level=3), E("b", partition="1", level=3)]))
    for level in range(1, 6):
        it = batch([E("c", number=level + 50, level=level), E("d", partition="1", number=level, level=4)])
        for writer in (table, sink(path)):
            with pytest.raises(OwnerLevelWentBack, match=r"partition 0.*seen level 3.*--to sink"):
                writer.apply(it, lambda hub, partition, level=level: level)  # type: ignore[misc]
    with pytest.raises(OwnerLevelWentBack, match=r"an earlier batch was refused, since the table had seen level 3"):
        table.apply(batch([E("c", number=60, level=7)]))
    assert table.watermarks("h") == {"0": Watermark(9, 3, disputed=True), "1": Watermark(0, 3)}
    assert look(path) == [("a", "ok", None), ("b", "ok", None)]
    assert table.apply(batch([E("d", partition="1", number=1, level=4)])).applied == 1, "the others go on"

    assert table.raise_owner_levels("h", {"0": 8})["0"] == Watermark(9, 8, disputed=True)
    table.set_watermarks("h", {"0": Watermark(9, 9)})
    assert table.apply(batch([E("c", number=10, level=10)]), lambda hub, partition: 10).applied == 1


def test_a_reset_that_comes_while_the_store_is_asked_is_not_undone(path: Path) -> None:
    table = sink(path)
    table.apply(batch([E("a", level=3)]))

    def level_of(hub: str, partition: str) -> int:
        sink(path).set_watermarks("h", {"0": Watermark(0, 5)})
        return 1

    with pytest.raises(OwnerLevelWentBack):
        table.apply(batch([E("b", number=1, level=1)]), level_of)
    assert table.watermarks("h") == {"0": Watermark(0, 5)}
