"""`leasehold send`: what rows become, where they go, and what is said when something is wrong."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import re
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import schemaless_reader

from leasehold.cli.app import app
from leasehold.cli.rows.csv_file import TextKind, kind_of
from leasehold.cli.send import Account
from leasehold.hubs.log import payload as log_payload
from leasehold.hubs.log.format import PRAGMAS
from leasehold.hubs.log.hub import LogHub
from leasehold_testkit.emulators.registry import RegistryServer


def send(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["send", f"log:///{folder}/hub.db", *arguments])


def sent(folder: Path, *arguments: str) -> dict[str, Any]:
    result = send(folder, *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def events(folder: Path) -> list[tuple[str, str | None, str]]:
    """(partition, key, body) of every event, in order within a partition."""
    hub = LogHub(folder / "hub.db")
    found = []
    for partition, place in hub.partition_properties().items():
        for batch in hub.read(partition, place.begin, place.end, columns=("partitionKey", "body")):
            keys, bodies = (batch.column(i).to_pylist() for i in range(2))
            found += [(partition, key, body.decode()) for key, body in zip(keys, bodies, strict=True)]
    hub.close()
    return found


def bodies(folder: Path) -> list[str]:
    return [body for _, _, body in events(folder)]


def write(path: Path, text: str) -> str:
    path.write_bytes(text.encode())
    return str(path)


def test_a_csv_row_becomes_a_json_object(tmp_path: Path) -> None:
    text = (
        'id,n,x,ok,code,day,note\n1,10,1.50,true,007,2013-01-01,"say ""é""\nnow"\n2,NA,-2e3,False,12,NA,\n3,,,,x,,""\n'
    )
    document = sent(tmp_path, write(tmp_path / "rows.csv", text), "--partition-key", "id", "--partitions", "1")
    assert bodies(tmp_path) == [
        '{"id":1,"n":10,"x":1.50,"ok":true,"code":"007","day":"2013-01-01","note":"say \\"é\\"\\nnow"}',
        '{"id":2,"n":null,"x":-2e3,"ok":false,"code":"12","day":"NA","note":null}',
        '{"id":3,"n":null,"x":null,"ok":null,"code":"x","day":null,"note":""}',
    ]
    assert [key for _, key, _ in events(tmp_path)] == ["1", "2", "3"]
    assert document["events"] == 3
    assert document["partitions"] == 1
    assert document["files"] == [{"file": str(tmp_path / "rows.csv"), "events": 3}]


def test_a_csv_row_that_is_too_large_is_named_as_that(tmp_path: Path) -> None:
    text = f"id,note\n1,a\n2,{'x' * (9 << 20)}\n"
    result = send(tmp_path, write(tmp_path / "rows.csv", text), "--partition-key", "id", "--partitions", "1")
    assert result.exit_code == 1
    assert "a row has more than 4,194,304 bytes" in result.stderr


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", "3.5", "1E5", None], TextKind.NUMBER),
        (["1", ".5", "5.", "-.5e1", "5.e+1"], TextKind.LOOSE_NUMBER),
        (["+4930123456", "4930123456"], TextKind.TEXT),
        (["+1.5"], TextKind.TEXT),
        (["007"], TextKind.TEXT),
        (["1", "x"], TextKind.TEXT),
        (["inf"], TextKind.TEXT),
        (["1 "], TextKind.TEXT),
        (["true", "FALSE", "NA"], TextKind.BOOLEAN),
        (["true", "1"], TextKind.TEXT),
        (["NA", None], TextKind.NOTHING),
        ([], TextKind.NOTHING),
    ],
)
def test_what_a_csv_column_is(values: list[str | None], kind: TextKind) -> None:
    assert kind_of(pa.array(values, pa.string())) is kind


@pytest.mark.more
def test_a_csv_column_is_what_the_whole_file_says(tmp_path: Path) -> None:
    rows = "".join(f"{i},,1,.5\n" for i in range(300_000))  # more than one block
    file = write(tmp_path / "rows.csv", f"id,late,mixed,loose\n{rows}300000,7,x,-.25\n")
    sent(tmp_path, file, "--partition-key", "id", "--partitions", "1")
    found = bodies(tmp_path)
    assert len(found) == 300_001
    assert found[0] == '{"id":0,"late":null,"mixed":"1","loose":0.5}'
    assert found[-1] == '{"id":300000,"late":7,"mixed":"x","loose":-0.25}'


def test_a_column_of_numbers_but_for_a_few_goes_as_text_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = [(f"k{number}", "abc" if number in (7, 9) else number, number, "x" * (number % 5)) for number in range(40)]
    rows = [",".join(map(str, each)) for each in values]
    file = write(tmp_path / "rows.csv", "\n".join(["id,customer,amount,note", *rows, "k40,NA,,"]))
    sent(tmp_path, file, "--partition-key", "id", "--partitions", "1")
    found = [json.loads(body) for body in bodies(tmp_path)]
    assert [(one["customer"], one["amount"]) for one in found[6:8]] == [("6", 6), ("abc", 7)]
    (said,) = caplog.messages
    assert said.endswith("the column customer goes as text: 2 of its 40 values are no number, the first is 'abc'")


@pytest.mark.parametrize("others", ["", "4930654321,x\n", ",x\n", "NA,x\n", "+.5,x\n"])
def test_telephone_numbers_keep_their_plus_whatever_the_other_rows_hold(tmp_path: Path, others: str) -> None:
    file = write(tmp_path / "rows.csv", f"phone,name\n+4930123456,x\n{others}")
    sent(tmp_path, file, "--partition-key", "phone", "--partitions", "1")
    assert events(tmp_path)[0] == ("0", "+4930123456", '{"phone":"+4930123456","name":"x"}')


def test_texts_that_stand_for_null(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.csv", "id,a\nNA,-\nx,NA\n")
    sent(tmp_path, file, "--partition-key", "id", "--partitions", "1", "--null", "NA", "--null", "-")
    assert events(tmp_path) == [("0", None, '{"id":null,"a":null}'), ("0", "x", '{"id":"x","a":null}')]


def test_rows_of_a_key_keep_their_order_and_keyless_rows_share_one_partition(tmp_path: Path) -> None:
    rows = "".join(f"{'' if i % 10 == 0 else f'k{i % 10}'},{i}\n" for i in range(5000))
    file = write(tmp_path / "rows.csv", f"key,n\n{rows}")
    sent(tmp_path, file, "--partition-key", "key", "--partitions", "8", "--batch-rows", "700")
    found = events(tmp_path)
    assert len(found) == 5000
    places: dict[str | None, set[str]] = {}
    orders: dict[str | None, list[int]] = {}
    for partition, key, body in found:
        places.setdefault(key, set()).add(partition)
        orders.setdefault(key, []).append(json.loads(body)["n"])
    assert len(places) == 10
    assert all(len(partitions) == 1 for partitions in places.values())
    assert all(order == sorted(order) for order in orders.values())
    assert len({p for partitions in places.values() for p in partitions}) > 1


def test_a_line_of_json_goes_as_it_is_written(tmp_path: Path) -> None:
    lines = [
        '\ufeff{"id": "a", "n": 12345678901234567890, "x": 1.0, "deep": {"l": [1, null, "é"]}}',
        "",
        '\t{"price": 1234567890.123456789012345678, "rate": 1.10, "id": 7} \r',
        '{"no":"id", "tiny": 0.1e-400, "huge": 1e999, "big": 1E5, "zero": -0}',
        '{"id": true, "q": "a \\"b\\" \\\\ \\n \\u00e9"}',
        f'{{"id":"long", "n":{"9" * 5000}}}',
    ]
    sent(tmp_path, write(tmp_path / "rows.jsonl", "\n".join(lines)), "--partition-key", "id", "--partitions", "1")
    assert [(key, body) for _, key, body in events(tmp_path)] == [
        ("a", lines[0].removeprefix("\ufeff")),
        ("7", lines[2].strip()),
        (None, lines[3]),
        ("true", lines[4]),
        ("long", lines[5]),
    ]


def test_nan_in_json_lines_becomes_null_and_nothing_else_changes(tmp_path: Path) -> None:
    line = r'{"x": NaN, "NaN": [NaN, "NaN \" NaN", 1.10, "\\"], "id": "NaN"}'
    sent(tmp_path, write(tmp_path / "rows.jsonl", line), "--partition-key", "id")
    assert bodies(tmp_path) == [r'{"x": null, "NaN": [null, "NaN \" NaN", 1.10, "\\"], "id": "NaN"}']


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("1.10", "1.10"),
        ("1234567890.123456789012345678", "1234567890.123456789012345678"),
        ("1E5", "1E5"),
        ("-0.0", "-0.0"),
        ("false", "false"),
        ("null", None),
        ("NaN", None),
        ('""', ""),
        (r'"\u0041é"', "Aé"),
        ('{ "b" : [ 1.10, "x" ] }', '{"b":[1.10,"x"]}'),
    ],
)
def test_a_key_of_json_lines_keeps_its_digits(tmp_path: Path, value: str, key: str | None) -> None:
    sent(tmp_path, write(tmp_path / "rows.jsonl", f'{{"id": {value}}}'), "--partition-key", "id", "--partitions", "1")
    assert [key for _, key, _ in events(tmp_path)] == [key]


def test_parquet_types_become_json(tmp_path: Path) -> None:
    utc = dt.datetime(2013, 1, 1, 10, 0, 0, 5, tzinfo=dt.UTC)
    columns = {
        "id": pa.array([Decimal("1.10"), None], pa.decimal128(10, 2)),
        "f": pa.array([2.0, float("nan")]),
        "small": pa.array([0.1, 1e300], pa.float64()),
        "b": pa.array([True, None]),
        "day": pa.array([dt.date(2013, 1, 1), None]),
        "clock": pa.array([dt.time(1, 2, 3), None], pa.time32("s")),
        "zoned": pa.array([utc, None], pa.timestamp("us", "America/New_York")),
        "naive": pa.array([utc.replace(tzinfo=None), None], pa.timestamp("ms")).cast(pa.timestamp("ms")),
        "raw": pa.array([b"\x00\xff", None]),
        "word": pa.array(["é\t", None]).dictionary_encode(),
        "list": pa.array([[utc, None], []], pa.list_(pa.timestamp("us", "UTC"))),
        "map": pa.array([[("k", 1.5)], []], pa.map_(pa.string(), pa.float64())),
        "struct": pa.array([{"a": Decimal("2.0"), "b": b"\xff"}, None]),
        "none": pa.nulls(2),
    }
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", store_schema=True)
    sent(tmp_path, str(tmp_path / "rows.parquet"), "--partition-key", "id", "--partitions", "1")
    (_, key, first), (_, second_key, second) = events(tmp_path)
    assert (key, second_key) == ("1.10", None)
    assert json.loads(first) == {
        "id": "1.10",
        "f": 2.0,
        "small": 0.1,
        "b": True,
        "day": "2013-01-01",
        "clock": "01:02:03.000",  # Parquet knows milliseconds at the least
        "zoned": "2013-01-01T10:00:00.000005Z",
        "naive": "2013-01-01T10:00:00.000",
        "raw": "AP8=",
        "word": "é\t",
        "list": ["2013-01-01T10:00:00.000005Z", None],
        "map": {"k": 1.5},
        "struct": {"a": "2.0", "b": "/w=="},
        "none": None,
    }
    assert '"f":2.0,' in first
    assert json.loads(second) == dict.fromkeys(columns) | {"small": 1e300, "list": [], "map": {}}


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.jsonl.gz"])
def test_packed_files_are_read(tmp_path: Path, name: str) -> None:
    text = "id\n1\n" if ".csv" in name else '{"id":1}\n'
    (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    sent(tmp_path, str(tmp_path / name), "--partition-key", "id")
    assert bodies(tmp_path) == ['{"id":1}']


def test_a_log_is_made_grown_and_kept(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.csv", "id\n1\n")
    assert sent(tmp_path, file, "--partition-key", "id")["partitions"] == 4
    assert sent(tmp_path, file, "--partition-key", "id", "--partitions", "6")["partitions"] == 6
    assert sent(tmp_path, file, file, "--partition-key", "id")["events"] == 2
    assert len(bodies(tmp_path)) == 4
    refused = send(tmp_path, file, "--partition-key", "id", "--partitions", "2")
    assert refused.exit_code == 1
    assert "6" in refused.stderr


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("rows.csv", "a,b\n1,2\n", ["no column 'id'", "a, b", "--partition-key"]),
        ("rows.csv", "id,b,b\n1,2,3\n", ["'b' is there twice"]),
        ("rows.csv", "", ["Empty CSV file"]),
        ("rows.csv", "id,b\n1,2\n3\n", ["row 3 (the header is row 1)", "Expected 2 columns, got 1", "Nothing"]),
        ("rows.csv", 'id,b\n1,"x\n2,y\n3,"z"\n', ["line 2", "does not end with one", "Nothing"]),
        ("rows.jsonl", '{"a":1}\n', ["no column 'id'"]),
        ("rows.jsonl", '{"id":1}\n[2]\n', ["line 2", "not a JSON object", "Nothing"]),
        ("rows.jsonl", '{"id":1}\n{"id":\n', ["line 2", "not a JSON object", "character"]),
        ("rows.jsonl", '{"id":1}\n{"id":"\\ud800"}\n', ["line 2", "not JSON that can be sent"]),
        ("rows.jsonl", '{"id":1}\n\n{"id":2,"a":1,"a":2}\n', ["line 3", "'a' occurs twice in one object", "Nothing"]),
        ("rows.jsonl", '{"id":1,"id":1}\n', ["line 1", "'id' occurs twice", "Nothing"]),
        ("rows.jsonl", '{"id":1,"x":[{"b":1,"\\u0062":2}]}\n', ["line 1", "'b' occurs twice", "Nothing"]),
        ("rows.jsonl", f'{{"id":{"[" * 5000}{"]" * 5000}}}\n', ["line 1", "nested too deeply"]),
        ("rows.jsonl", '{"id":1}\n{"id":Infinity}\n', ["line 2", "Infinity"]),
        ("rows.parquet", "nothing of the kind", ["Parquet"]),
        ("rows.csv.gz", "not packed", ["rows.csv.gz"]),
        ("rows.txt", "id\n", [".csv", ".parquet"]),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path, name: str, text: str, says: list[str]) -> None:
    result = send(tmp_path, write(tmp_path / name, text), "--partition-key", "id")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for part in (str(tmp_path / name), *says):
        assert part in result.stderr


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.csv.gz"])
def test_a_file_that_is_utf16_is_named_for_what_it_is(tmp_path: Path, name: str, coding: str) -> None:
    raw = ('{"id":1}\n' if ".json" in name else "id\n1\n").encode(coding)
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    result = send(tmp_path, str(tmp_path / name), "--partition-key", "id")
    assert result.exit_code == 1
    assert f"{name}: the file is {coding[:6].upper()}: save it as UTF-8" in result.stderr


def test_text_that_is_not_utf8_is_named_with_its_row(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"id,b\n1,2\n3,\xff\n")
    result = send(tmp_path, str(tmp_path / "rows.csv"), "--partition-key", "id")
    assert result.exit_code == 1
    assert "row 3 (the header is row 1), column 'b'" in result.stderr


def test_infinity_in_parquet_is_named_with_its_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3], "x": [1.0, 2.0, float("-inf")]}), tmp_path / "rows.parquet")
    result = send(tmp_path, str(tmp_path / "rows.parquet"), "--partition-key", "id", "--batch-rows", "2")
    assert result.exit_code == 1
    assert "row 3, column 'x': JSON has no word for infinity" in result.stderr
    assert "By then 2 events had been sent, 2 of them from" in result.stderr


_DAY = 86_400


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pa.timestamp("ms"), (-719162 * _DAY * 1000, 2932897 * _DAY * 1000 - 1), (-719162 * _DAY * 1000 - 1, 2**62)),
        (pa.timestamp("us", "UTC"), (0, 2932897 * _DAY * 10**6 - 1), (-(2**62), 2**62)),
        (pa.date32(), (-719162, 2932896), (-719163, 2**31 - 1)),
        (pa.time32("ms"), (0, _DAY * 1000 - 1), (-1, _DAY * 1000)),
    ],
    ids=str,
)
def test_a_time_that_iso_8601_has_no_text_for_is_named_with_its_row(
    tmp_path: Path, kind: pa.DataType, good: tuple[int, int], bad: tuple[int, int]
) -> None:
    """Arrow writes a text for any number, such as 20382-05-05T-1236950581239:36:27.904."""
    number = pa.int32() if kind.bit_width == 32 else pa.int64()
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": [1, 2], "x": pa.array(good, number).cast(kind)}), file)
    assert send(tmp_path, str(file), "--partition-key", "id").exit_code == 0
    for each in bad:
        pq.write_table(pa.table({"id": [1, 2], "x": pa.array([good[0], each], number).cast(kind)}), file)
        result = send(tmp_path, str(file), "--partition-key", "id")
        assert result.exit_code == 1
        assert f"row 2, column 'x': the number {each} of type" in result.stderr


def test_a_struct_of_parquet_with_a_name_twice_is_named_with_its_row(tmp_path: Path) -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], fields=[pa.field("a", pa.int64())] * 2)
    pq.write_table(pa.table({"id": [1], "s": twice}), tmp_path / "rows.parquet")
    result = send(tmp_path, str(tmp_path / "rows.parquet"), "--partition-key", "id")
    assert result.exit_code == 1
    assert "row 1, column 's': it cannot be read" in result.stderr
    assert "duplicate field names" in result.stderr


def test_a_bad_row_after_others_says_how_many_were_sent(tmp_path: Path) -> None:
    good = write(tmp_path / "good.csv", "id\n1\n2\n3\n")
    bad = write(tmp_path / "bad.jsonl", '{"id":1}\n{"id":2}\n{"id":3}\nx\n')
    result = send(tmp_path, good, bad, "--partition-key", "id", "--batch-rows", "2")
    assert result.exit_code == 1
    assert f"{bad}, line 4: not a JSON object" in result.stderr
    assert f"By then 5 events had been sent, 2 of them from {bad}" in result.stderr
    assert len(bodies(tmp_path)) == 5


def large_rows(path: Path, count: int) -> str:
    return write(path, "".join(f'{{"id": {number}, "x": "{"x" * 2_000}"}}\n' for number in range(count)))


def sent_before(error: str) -> int:
    """How many events are sent, by the note of an error."""
    found = re.search(r"By then (\d+) events? had been sent", error)
    assert found, error
    return int(found[1])


def test_a_full_disk_in_the_middle_says_how_many_were_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, file = write(tmp_path / "good.csv", "id\n1\n2\n"), large_rows(tmp_path / "rows.jsonl", 400)
    sent(tmp_path, good, "--partition-key", "id")
    monkeypatch.setattr("leasehold.hubs.log.file.PRAGMAS", (*PRAGMAS, "max_page_count = 50"))  # of 16 KiB
    failed = send(tmp_path, good, file, "--partition-key", "id", "--batch-rows", "200")
    assert failed.exit_code == 1
    assert "make room" in failed.stderr
    there = sent_before(failed.stderr)
    assert there == len(bodies(tmp_path)) - 2
    of_the_file = there - 2
    assert 200 < of_the_file < 400, "it fails in the middle of a batch"
    rows = f"its first 200 rows, and {of_the_file - 200} of the next 200, not in the order of the file"
    assert f"{of_the_file} of them from {file} ({rows}). They stay in the hub." in failed.stderr
    assert "Nothing has been sent." in send(tmp_path, file, "--partition-key", "id").stderr, "the disk is full already"
    assert len(bodies(tmp_path)) == there + 2


def test_an_event_that_is_too_large_behind_others_says_how_many_were_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_payload, "LARGEST_EVENT", 1_000)
    monkeypatch.setattr(log_payload, "STORED_BYTES", 1_000)
    for large in range(8):  # in whichever partition it is
        place = tmp_path / str(large)
        place.mkdir()
        lines = (f'{{"id": {number}, "x": "{"x" * 2_000 * (number == large)}"}}\n' for number in range(8))
        failed = send(place, write(place / "rows.jsonl", "".join(lines)), "--partition-key", "id")
        assert "a log takes up to 1,000" in failed.stderr
        if there := len(bodies(place)):
            assert sent_before(failed.stderr) == there
            assert f"({there} of its first 8, not in the order of the file)" in failed.stderr
        else:
            assert "Nothing has been sent." in failed.stderr


@pytest.mark.parametrize(
    ("account", "said"),
    [
        (Account(), "Nothing has been sent."),
        (Account(sending=9), "Of f.csv some of the 9 rows being sent may be in the hub. They stay there."),
        (Account([4], 0, 0, 9), "By then 4 events had been sent, 0 of them from f.csv, and perhaps more of the 9 rows"),
        (Account([], 1, 1), "By then 1 event had been sent, 1 of them from f.csv. They stay in the hub."),
    ],
)
def test_a_hub_that_may_have_taken_more_than_it_said(account: Account, said: str) -> None:
    assert account.sentence(Path("f.csv"), exact=False).startswith(said)


def test_nothing_is_made_when_a_file_is_missing(tmp_path: Path) -> None:
    good = write(tmp_path / "good.csv", "id\n1\n")
    result = send(tmp_path, good, str(tmp_path / "missing.csv"), "--partition-key", "id")
    assert result.exit_code == 1
    assert "missing.csv: No such file or directory" in result.stderr
    assert not (tmp_path / "hub.db").exists()


@pytest.mark.parametrize("url", ["log://hub.db", "nothing:///x", "hub.db"])
def test_a_url_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    file = write(tmp_path / "rows.csv", "id\n1\n")
    result = CliRunner().invoke(app, ["send", url, file, "--partition-key", "id"])
    assert result.exit_code == 1
    assert url in result.stderr


def test_people_get_a_table(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.csv", "id\n1\n")
    result = send(tmp_path, file, "--partition-key", "id")
    assert result.exit_code == 0
    header, row, summary = result.stdout.splitlines()
    assert header.split() == ["File", "Events"]
    assert row.split() == [file, "1"]
    assert summary.startswith("sent 1 event to log:///")


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "delay", "type": ["null", "float"]},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "legs", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
    ],
}


def in_avro(folder: Path, *lines: dict[str, Any], registry: str = "", **fields: Any) -> Result:
    """What sending these lines by the schema says; `fields` are types in place of some of its own."""
    through = ("--registry", registry) if registry else ()
    schema = {**AVRO, "fields": [{**one, "type": fields.get(one["name"], one["type"])} for one in AVRO["fields"]]}
    path = write(folder / "flight.avsc", json.dumps(schema))
    rows = write(folder / "f.jsonl", "\n".join(json.dumps({**WHOLE, **line}) for line in lines))
    return send(folder, rows, "--partition-key", "id", "--avro-schema", path, "--partitions", "1", *through)


WHOLE = {"id": "a", "delay": 1.5, "fare": "2.50", "at": "2026-02-03T04:05:06.007Z", "legs": {"x": [1, 2]}, "more": 1}


def test_rows_are_written_in_avro(tmp_path: Path) -> None:
    assert in_avro(tmp_path, {}, {"delay": None, "legs": {}, "fare": 3}).exit_code == 0
    hub = LogHub(tmp_path / "hub.db")
    (batch,) = hub.read("0", 0, 2, columns=("body",))
    read = [schemaless_reader(io.BytesIO(body), AVRO, None) for body in batch.column(0).to_pylist()]
    hub.close()
    at = dt.datetime(2026, 2, 3, 4, 5, 6, 7_000, tzinfo=dt.UTC)
    assert read == [
        {"id": "a", "delay": 1.5, "fare": Decimal("2.50"), "at": at, "legs": {"x": [1, 2]}},
        {"id": "a", "delay": None, "fare": Decimal(3), "at": at, "legs": {}},
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"fare": "2.505"}, 'row 2: the field fare is "2.505", which no DECIMAL(6,2) holds'),
        (
            {"at": "2026-02-03T04:05:06.0075Z"},
            "row 2: the field at is 2026-02-03 04:05:06.007500+00:00, which the schema",
        ),
        ({"id": None}, "row 2: must be string on field id"),
        ({"legs": {"x": [2**31]}}, "row 2: the field legs.x[0] is 2147483648, which no INT holds"),
    ],
)
def test_a_row_that_the_schema_does_not_hold_is_refused(tmp_path: Path, line: dict[str, Any], says: str) -> None:
    result = in_avro(tmp_path, {}, line)
    assert result.exit_code == 1
    assert says in result.stderr
    assert "Nothing has been sent." in result.stderr


@pytest.mark.parametrize(
    ("type_", "says"),
    [
        (["string", "int"], "by a schema of one type beside null, which delay is not"),
        ({"type": "int", "logicalType": "time-millis"}, "and delay is time-millis"),
        ({"type": "array", "items": "null"}, "that does not hold itself"),
        ("of nobody", "not a schema of Avro"),
    ],
)
def test_a_schema_that_rows_are_not_written_by_is_refused(tmp_path: Path, type_: Any, says: str) -> None:
    result = in_avro(tmp_path, {}, delay=type_)
    assert result.exit_code == 1
    assert "--avro-schema" in result.stderr
    assert says in result.stderr
    assert not (tmp_path / "hub.db").exists()


def test_rows_written_through_a_registry_are_what_confluents_deserializer_reads(tmp_path: Path) -> None:
    with closing(RegistryServer()) as server:
        server.register("others-value", '"int"')
        for _ in range(2):
            assert in_avro(tmp_path, {}, {"id": "b"}, registry=server.url).exit_code == 0
        with SchemaRegistryClient({"url": server.url}) as client:
            assert client.get_subjects() == ["hub-value", "others-value"]
            assert client.get_versions("hub-value") == [1]
            read = AvroDeserializer(client)
            context = SerializationContext("hub", MessageField.VALUE)
            with closing(LogHub(tmp_path / "hub.db")) as hub:
                sent = [
                    body for batch in hub.read("0", 0, 4, columns=("body",)) for body in batch.column(0).to_pylist()
                ]
            assert {body[:5] for body in sent} == {b"\0\0\0\0\2"}
            found = [read(body, context) for body in sent]
    at = dt.datetime(2026, 2, 3, 4, 5, 6, 7_000, tzinfo=dt.UTC)
    row = {"delay": 1.5, "fare": Decimal("2.50"), "at": at, "legs": {"x": [1, 2]}}
    assert found == [{"id": "a", **row}, {"id": "b", **row}] * 2


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (
            "http://me:wrong@127.0.0.1:{port}",
            "Check the URL, and the user and password, or the token, and their rights",
        ),
        ("http://me:right@127.0.0.1:{port}/here", "Check the path of the URL"),
        ("http://me:right@127.0.0.1:{port}?no=1", "--registry"),
        ("kafka://127.0.0.1:{port}", "a URL of http or https"),
        ("azschemas://127.0.0.1:{port}", "only Confluent's registries are written to"),
    ],
)
def test_a_registry_that_does_not_take_the_schema_leaves_the_hub_empty(tmp_path: Path, url: str, says: str) -> None:
    with closing(RegistryServer(user="me", password="right")) as server:  # noqa: S106
        result = in_avro(tmp_path, {}, registry=url.format(port=server.port))
    assert result.exit_code == 1
    assert says in result.stderr
    assert "wrong" not in result.stderr
    assert "Nothing has been sent." in result.stderr
    assert events(tmp_path) == []


def test_a_registry_is_for_rows_by_a_schema(tmp_path: Path) -> None:
    result = send(tmp_path, write(tmp_path / "rows.csv", "id\n1\n"), "--partition-key", "id", "--registry", "http://x")
    assert result.exit_code == 1
    assert "--registry" in result.stderr
    assert "Give --avro-schema or --protobuf-schema as well" in result.stderr
