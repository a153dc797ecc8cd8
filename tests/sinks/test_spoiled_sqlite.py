"""What somebody else has written beside a table in SQLite is told by name; a watermark holds up its partition alone."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.errors import AlreadyInUse, OwnerLevelWentBack, SinkError
from leasehold.sinks import open_sink
from leasehold.sinks.beside import watermarks
from leasehold.sinks.rules.fence import Watermark
from leasehold_testkit.contracts.sinks.fixtures import HUB, UPSERT, Row, batch, read

NO_TEXT = "CAST(x'ff' AS TEXT)"


def level_of(hub: str, partition: str) -> int:
    return 1


def spoil(folder: Path, how: str) -> None:
    with closing(sqlite3.connect(folder / "table.db")) as connection, connection:
        connection.execute(f"UPDATE leasehold_watermark SET {how} WHERE partition = '0'")


@pytest.mark.parametrize(
    "how", ["sequence_number = 'abc'", "owner_level = 'x'", "sequence_number = 1.5", f"owner_level = {NO_TEXT}"]
)
def test_its_partition_is_in_dispute_until_a_reset_and_the_others_go_on(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermarks, "_said", set())
    with closing(open_sink(f"sqlite:////{tmp_path}/table.db", UPSERT)) as sink:
        for entity, partition in (("a", "0"), ("b", "1")):
            sink.apply(batch(Row(entity, 1, 0, partition), ranges=[read(0, 1, partition=partition)]))
        spoil(tmp_path, how)
        sink.apply(batch(Row("b", 2, 1, "1"), ranges=[read(1, 2, partition="1")]), level_of)
        assert sink.watermarks(HUB)["1"].sequence_number == 1
        late = batch(Row("a", 2, 1), ranges=[read(1, 2)])
        with pytest.raises(OwnerLevelWentBack):
            sink.apply(late, level_of)
        [said] = [one.getMessage() for one in caplog.records if "is invalid" in one.getMessage()]
        assert "leasehold reset" in said, "once"
        sink.set_watermarks(HUB, {"0": Watermark(0, 1, whole=True)})
        sink.apply(late, level_of)
        assert sink.watermarks(HUB)["0"].sequence_number == 1


@pytest.mark.parametrize(
    "how",
    [
        *("changes = 'x'", "enqueued_time = 'x'", "enqueued_time = 9e999", "whole = 'x'"),
        *(f"{column} = {NO_TEXT}" for column in ("changes", "enqueued_time", "whole")),
    ],
)
def test_what_is_kept_beside_it_matters_to_nothing(tmp_path: Path, how: str) -> None:
    with closing(open_sink(f"sqlite:////{tmp_path}/table.db", UPSERT)) as sink:
        sink.apply(batch(Row("a", 1, 0), ranges=[read(0, 1)]))
        spoil(tmp_path, how)
        sink.apply(batch(Row("a", 2, 1), ranges=[read(1, 2)]), level_of)
        assert sink.watermarks(HUB)["0"].sequence_number == 1


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("format = 'x'", "of format 'x', which does not exist"),
        ("keys = 'garbage'", "made with mode upsert and keys 'garbage'"),
        ("keys = '[1]'", "made with mode upsert and keys 1,"),
        ("keys = '5'", "made with mode upsert and keys '5'"),
    ],
)
def test_whose_a_table_is_cannot_be_read(tmp_path: Path, how: str, said: str) -> None:
    with closing(open_sink(f"sqlite:////{tmp_path}/table.db", UPSERT)) as sink:
        sink.apply(batch(Row("a", 1, 0), ranges=[read(0, 1)]))
    with closing(sqlite3.connect(tmp_path / "table.db")) as connection, connection:
        connection.execute(f"UPDATE leasehold_table SET {how}")
    with (
        closing(open_sink(f"sqlite:////{tmp_path}/table.db", UPSERT)) as sink,
        pytest.raises((SinkError, AlreadyInUse), match=re.escape(said)),
    ):
        sink.apply(batch(Row("a", 2, 1), ranges=[read(1, 2)]), level_of)
