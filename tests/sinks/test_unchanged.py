"""Values that an event leaves as they are: a table is at each moment as its source was, on both databases."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import ConfigError
from leasehold.model import EventRange
from leasehold.sinks import Sink, open_sink
from leasehold.sinks.rules.again import EventId
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec
from tests.sinks.events import look as look_into
from tests.sinks.postgres import Place
from tests.waiting import PATIENCE

KEEP = "__debezium_unavailable_value"
SPEC = TableSpec(name="docs", pipeline="p", keys=("id",), except_columns=("gone",), unavailable_value=KEEP)
SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("word", pa.string()), ("raw", pa.binary()), ("n", pa.int64()), ("gone", pa.bool_())),
        *(("hub", pa.string()), ("partition", pa.string()), ("sequenceNumber", pa.int64()), ("ownerLevel", pa.int64())),
    ]
)
Row = tuple[str | None, bytes | None, int | None]
"""The columns of an entity but for its key."""


@dataclass(frozen=True)
class OpenTable:
    """A table, what is in it, by key, and the numbers of what is set aside, with their reasons."""

    sink: Sink
    rows: Callable[[], dict[int, Row]]
    aside: Callable[[], dict[int, str]]


@dataclass
class Source:
    """The table at its source: what it has been after each event, by key."""

    rng: Random
    now: dict[int, Row] = field(default_factory=dict)
    after: list[tuple[int, Row | None]] = field(default_factory=list)

    def event(self) -> tuple[Any, ...]:
        """One more event, in the order of SCHEMA up to `gone`: it may leave text and bytes as they are."""
        rng, key, number = self.rng, self.rng.randrange(4), len(self.after)
        had = self.now.get(key)
        if had is not None and rng.random() < 0.15:
            del self.now[key]
            self.after.append((key, None))
            return (key, None, None, None, True)
        keeps_word, keeps_raw = (had is not None and rng.random() < 0.5 for _ in range(2))
        word = had[0] if had and keeps_word else rng.choice([None, "", f"w{number}"])
        raw = had[1] if had and keeps_raw else rng.choice([None, b"", b"\xff%d" % number])
        self.now[key] = (word, raw, number)
        self.after.append((key, self.now[key]))
        return (key, KEEP if keeps_word else word, KEEP.encode() if keeps_raw else raw, number, False)

    def left(self, aside: Mapping[int, str]) -> dict[int, Row]:
        """What a table has that has seen all but the events that are set aside: the row of the last one it has seen."""
        rows: dict[int, Row | None] = {}
        for number, (key, row) in enumerate(self.after):
            if number not in aside:
                rows[key] = row
        return {key: row for key, row in rows.items() if row is not None}


def batch(events: Sequence[tuple[Any, ...]], first: int, unread: Sequence[int] = ()) -> Batch:
    """These events, from the number `first` on; those `unread` could not be read."""
    numbers = range(first, first + len(events))
    rows = {number: one for number, one in zip(numbers, events, strict=True) if number not in unread}
    table = table_of(rows)
    return Batch(
        table,
        rejected(unread) if unread else None,
        delete=table["gone"],
        ranges=[EventRange("h", "0", 1, first, first + len(events))],
    )


def rejected(numbers: Sequence[int]) -> pa.Table:
    fence = {"hub": "h", "partition": "0", "ownerLevel": 1, "body": "{", "reason": "no JSON"}
    return pa.Table.from_pylist([{**fence, "sequenceNumber": number} for number in numbers])


def table_of(events: Mapping[int, tuple[Any, ...]]) -> pa.Table:
    rows = [dict(zip(SCHEMA.names, (*event, "h", "0", number, 1), strict=True)) for number, event in events.items()]
    return pa.Table.from_pylist(rows, SCHEMA)


def again(events: Mapping[int, tuple[Any, ...]]) -> Batch:
    """These events once more, which are set aside."""
    table = table_of(events)
    return Batch(table, delete=table["gone"], again={EventId("h", "0", number) for number in events})


@pytest.fixture(params=["sqlite", "postgres"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenTable]:
    query = "SELECT id, word, raw, n FROM docs"
    aside = "SELECT sequence_number, reason FROM docs_rejected"
    look: Callable[[str], list[tuple[Any, ...]]]
    if request.param == "sqlite":
        sink, look = open_sink("sqlite:///table.db", SPEC, base=tmp_path), partial(look_into, tmp_path / "table.db")
    else:
        place: Place = request.getfixturevalue("place")
        sink, look = open_sink(place.url, SPEC, timeout=PATIENCE), place.look

    def rows() -> dict[int, Row]:
        return {key: (word, raw and bytes(raw), n) for key, word, raw, n in look(query)}

    yield OpenTable(sink, rows, lambda: dict(look(aside)))
    sink.close()


@pytest.mark.more(but=4)
@pytest.mark.parametrize("seed", range(6))
def test_the_table_is_as_its_source_after_each_batch(table: OpenTable, seed: int) -> None:
    source = Source(Random(seed))
    while len(source.after) < 150:
        first, size = len(source.after), source.rng.choice([1, 2, 5, 30])
        result = table.sink.apply(batch([source.event() for _ in range(size)], first))
        assert (result.applied, result.rejected) == (size, 0)
        assert table.rows() == source.now


@pytest.mark.more(but=4)
@pytest.mark.parametrize("seed", range(6))
def test_no_row_is_made_of_a_value_that_is_not_known(table: OpenTable, seed: int) -> None:
    source, sent = Source(Random(f"aside {seed}")), dict[int, tuple[Any, ...]]()
    while len(source.after) < 150:
        first, size = len(source.after), source.rng.choice([1, 2, 5, 30])
        events = [source.event() for _ in range(size)]
        sent |= dict(enumerate(events, first))
        unread = [number for number in range(first, first + size) if source.rng.random() < 0.04]
        table.sink.apply(batch(events, first, unread))
        assert table.rows() == source.left(table.aside())
    aside = table.aside()
    assert any("may have changed it" in reason for reason in aside.values())
    assert all(KEEP in map(str, sent[number]) or reason == "no JSON" or KEEP.encode() in sent[number]
               for number, reason in aside.items())  # fmt: skip
    result = table.sink.apply(again({number: sent[number] for number in sorted(aside)}))
    assert result.again is not None
    assert result.again.rejected == len(table.aside()) == 0
    assert table.rows() == source.now


@pytest.mark.more(but=4)
@pytest.mark.parametrize("seed", range(6))
def test_events_that_are_read_again_after_a_reset_leave_the_same(table: OpenTable, seed: int) -> None:
    source = Source(Random(f"again {seed}"))
    events = [source.event() for _ in range(100)]
    table.sink.apply(batch(events, 0))
    for begin in (60, 95, 30):
        table.sink.set_watermarks("h", {"0": Watermark(begin - 1, 1)})
        for first in range(begin, 100, 7):
            table.sink.apply(batch(events[first : first + 7], first))
            found = {text for row in table.rows().values() for text in row[:2]}
            assert not found & {KEEP, KEEP.encode()}
        assert table.rows() == source.now
    assert not [reason for reason in table.aside().values() if "no row" not in reason]


def test_why_a_value_is_not_known(table: OpenTable) -> None:
    def said(first: int, *events: tuple[Any, ...], unread: Sequence[int] = ()) -> BatchResult:
        return table.sink.apply(batch(events, first, unread))

    assert said(0, (1, KEEP, b"", 1, False)).rejected == 1
    assert said(1, (1, "a", b"", 2, False), (1, None, None, None, True), (1, KEEP, b"", 3, False)).rejected == 1
    assert said(4, (2, "a", b"a", 1, False), (2, "b", b"b", 2, False), unread=[5]).applied == 1
    assert said(6, (2, KEEP, b"c", 3, False), (2, "d", KEEP.encode(), 4, False), (3, "", b"", 1, False)).rejected == 2
    assert said(9, (2, "e", b"e", 5, False), (2, KEEP, b"f", 6, False)).rejected == 0
    assert table.rows() == {2: ("e", b"f", 6), 3: ("", b"", 1)}
    no_row, doubt = "the event leaves word as it is, and there is no row before it", "try that one again first"
    reasons = table.aside()
    assert (reasons[0], reasons[3], reasons[5]) == (no_row, no_row, "no JSON")
    assert doubt in reasons[6]
    assert doubt in reasons[7]


@pytest.mark.parametrize("settings", [{"sequence_by": "n"}, {"on_two_partitions": "reject"}])
def test_where_events_may_come_in_another_order_nothing_is_filled_in(tmp_path: Path, settings: dict[str, Any]) -> None:
    with closing(open_sink("sqlite:///table.db", replace(SPEC, **settings), base=tmp_path)) as sink:
        one = batch([(1, "a", b"", 1, False), (1, KEEP, b"", 2, False), (1, "b", b"", 3, False)], 0)
        order = one.rows["n"] if "sequence_by" in settings else None
        assert sink.apply(replace(one, sequence_by=order)).rejected == 1
    assert look_into(tmp_path / "table.db", "SELECT word FROM docs") == [("b",)]
    [(reason,)] = look_into(tmp_path / "table.db", "SELECT reason FROM docs_rejected")
    assert reason.startswith("the event leaves word as it is, and events of a key may come in another order")


CODED = base64.b64encode(KEEP.encode()).decode()
NUMBERS = list(KEEP.encode())
FILLED: list[tuple[pa.DataType, Any]] = [
    *((pa.string(), text) for text in (KEEP, CODED, f'["{KEEP}"]', f'{{"{KEEP}": "{KEEP}"}}', json.dumps(NUMBERS))),
    (pa.string(), json.dumps([CODED], indent=1)),
    (pa.large_string(), KEEP),
    (pa.dictionary(pa.int32(), pa.string()), KEEP),
    (pa.binary(), KEEP.encode()),
    (pa.large_binary(), KEEP.encode()),
]
SET_ASIDE: list[tuple[pa.DataType, Any]] = [
    (pa.list_(pa.string()), [KEEP]),
    (pa.list_(pa.string()), [CODED]),
    (pa.list_(pa.string()), [str(number) for number in NUMBERS]),
    (pa.large_list(pa.string()), [KEEP]),
    (pa.list_(pa.binary()), [KEEP.encode()]),
    (pa.list_(pa.int32()), NUMBERS),
    (pa.list_(pa.date32()), [date(1970, 1, 1) + timedelta(number) for number in NUMBERS]),
    (pa.list_(pa.string()), ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
    (pa.map_(pa.string(), pa.string()), [(KEEP, KEEP)]),
    (pa.struct([("inner", pa.string())]), {"inner": KEEP}),
]


def of_type(type_: pa.DataType, values: Sequence[Any], first: int) -> Batch:
    """Rows of the entity 1 that have these values in the column `it`."""
    rows = batch([(1, "w", b"", number, False) for number in range(len(values))], first)
    return replace(rows, rows=rows.rows.append_column("it", pa.array(values, type_)))


@pytest.mark.parametrize("type_and_value", [*FILLED, *SET_ASIDE], ids=str)
def test_the_forms_that_the_text_has(tmp_path: Path, type_and_value: tuple[pa.DataType, Any]) -> None:
    type_, value = type_and_value
    plain = {"1": "x"} if pa.types.is_map(type_) else pa.array([value], type_).to_pylist()[0]
    if isinstance(plain, str | bytes):
        plain = plain[:1] * 3
    elif pa.types.is_struct(type_):
        plain = {"inner": f"{KEEP} in a text"}
    elif isinstance(plain, list):
        plain = plain * 2 if len(plain) > 1 else []
    with closing(open_sink("sqlite:///table.db", SPEC, base=tmp_path)) as sink:
        before = sink.apply(of_type(type_, [plain], 0))
        after = sink.apply(of_type(type_, [value], 1))
    assert (before.rejected, after.rejected) == (0, int(type_and_value in SET_ASIDE))
    [(there,)] = look_into(tmp_path / "table.db", "SELECT it FROM docs")
    if type_and_value in FILLED:
        assert there == plain


def test_so_many_events_are_set_aside_that_nobody_looks_at_all(tmp_path: Path) -> None:
    with closing(open_sink("sqlite:///table.db", SPEC, base=tmp_path)) as sink:
        sink.apply(batch([(1, "a", b"", 1, False)], 0))
        sink.apply(batch([(2, "", b"", 1, False)] * 1100, 1, unread=range(1, 1101)))
        sink.apply(batch([(1, "b", b"", 2, False), (1, "c", b"", 3, False)], 1101, unread=[1102]))
        assert sink.apply(batch([(9, KEEP, b"", 1, False), (1, KEEP, b"", 4, False)], 1103)).rejected == 2
    assert look_into(tmp_path / "table.db", "SELECT word FROM docs") == [("b",)]


@pytest.mark.parametrize(
    ("type_", "key"),
    [
        (pa.date32(), date(2026, 2, 3)),
        (pa.timestamp("us", "UTC"), datetime(2026, 2, 3, 4, 5, 6, 7, UTC)),
        (pa.decimal128(8, 2), Decimal("1.50")),
        (pa.bool_(), True),
    ],
)
def test_keys_of_any_type_and_in_any_case(
    tmp_path: Path, request: pytest.FixtureRequest, type_: pa.DataType, key: Any
) -> None:
    place: Place = request.getfixturevalue("place")
    for sink in (
        open_sink("sqlite:///table.db", replace(SPEC, keys=("key", "id")), base=tmp_path),
        open_sink(place.url, replace(SPEC, keys=("key", "id")), timeout=PATIENCE),
    ):
        with closing(sink):
            for number, word in enumerate(("a", KEEP, KEEP)):
                one = batch([(1, word, b"", number, False)], number)
                rows = one.rows.rename_columns(["ID", *one.rows.schema.names[1:]])
                result = sink.apply(replace(one, rows=rows.append_column("Key", pa.array([key], type_))))
                assert (result.applied, result.rejected) == (1, 0)
    assert look_into(tmp_path / "table.db", "SELECT word, n FROM docs") == place.look("SELECT word, n FROM docs")
    assert place.look("SELECT word, n FROM docs") == [("a", 2)]


def test_a_column_called_body_tells_no_key(tmp_path: Path) -> None:
    def rows(word: str, first: int, *, bad: bool = False) -> Batch:
        one = batch([(1, word, b"", first, False)], first)
        body = pa.array([json.dumps({"id": 7})])
        text = "\udc00" if bad else "t"
        return replace(one, rows=one.rows.append_column("body", body).append_column("t", pa.array([text.encode(
            "utf-8", "surrogatepass")]).cast(pa.string(), safe=False)))  # fmt: skip

    with closing(open_sink("sqlite:///table.db", SPEC, base=tmp_path)) as sink:
        assert sink.apply(rows("a", 0)).applied == 1
        assert sink.apply(rows("b", 1, bad=True)).rejected == 1
        assert sink.apply(rows(KEEP, 2)).rejected == 1


def test_what_does_not_go_with_it() -> None:
    others: list[dict[str, Any]] = [{"mode": "append", "keys": ()}, {"handled": True}]
    for settings in others:
        with pytest.raises(ConfigError, match="unavailable_value"):
            replace(SPEC, **settings)
    with pytest.raises(ConfigError, match="id is a key"):
        TableSpec(name="docs", pipeline="p", keys=("id",), except_columns=("ID",))
