"""The contract of sinks that keep states for handlers (the feature STATES), as tests.

Subclass it as `SinkContract`, with the fixtures `open_table`, and `constrain`, which adds a unique index on `value` to
the table `entities`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import ConfigError
from leasehold.model import EventRange
from leasehold.sinks.base import Sink
from leasehold.sinks.features import BOOKKEEPING, STATES
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold_testkit.contracts.sinks.fixtures import (
    HUB,
    UPSERT,
    Row,
    SinkFixtures,
    asked,
    batch,
    one_row_each,
    read,
    retried,
    table_of,
)
from leasehold_testkit.contracts.sinks.rejected import event

Open = Callable[[TableSpec], Sink]

COLUMNS = pa.schema({"entity": pa.string(), "value": pa.int64()})
WIDE: tuple[tuple[str, pa.DataType, Any], ...] = (
    ("yes", pa.bool_(), True),
    ("small", pa.int8(), -7),
    ("large", pa.int64(), 2**62),
    ("ratio", pa.float64(), 0.1),
    ("exact", pa.decimal128(20, 6), Decimal("-12345.678900")),
    ("text", pa.string(), "näh 'x' \n"),
    ("raw", pa.binary(), b"\0\xff"),
    ("day", pa.date32(), date(2026, 2, 3)),
    ("moment", pa.timestamp("us", tz="UTC"), datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC)),
    ("local", pa.timestamp("us"), datetime(2026, 2, 3, 4, 5, 6)),
)


class StatesContract(SinkFixtures):
    """What every sink must do that has the feature STATES."""

    of = (STATES,)

    @pytest.fixture
    def keeping(self, open_table: Open) -> Any:
        return open_table(UPSERT)

    def test_the_rows_of_keys_that_are_there_come_back(self, keeping: Any, open_table: Open) -> None:
        keeping.apply(batch(Row("a", 1, 1), Row("b", 2, 2), Row("c", 3, 3), Row("gone", 4, 4), deletes=True))
        keeping.apply(batch(Row("gone", 4, 5, gone=True), deletes=True))
        other = asked(open_table(UPSERT), STATES)
        found = other.read_states(COLUMNS, [("c",), ("a",), ("gone",), ("nobody",)])
        assert found == {("a",): {"entity": "a", "value": 1}, ("c",): {"entity": "c", "value": 3}}
        assert keeping.read_states(COLUMNS, []) == {}

    def test_many_keys_at_once(self, keeping: Any) -> None:
        keeping.apply(batch(*(Row(f"k{n}", n, n) for n in range(1500))))
        found = keeping.read_states(COLUMNS, [(f"k{n}",) for n in range(1500)])
        assert [found[f"k{n}",]["value"] for n in range(1500)] == list(range(1500))

    def test_values_come_back_as_they_were_written(self, keeping: Any) -> None:
        rows = table_of([Row("full", 1, 1), Row("empty", 2, 2)])
        for name, type_, value in WIDE:
            rows = rows.append_column(name, pa.array([value, None], type_))
        keeping.apply(Batch(rows, ranges=[EventRange(HUB, "0", 1, 1, 3)]))
        schema = pa.schema([*COLUMNS, *(pa.field(name, type_) for name, type_, _ in WIDE)])
        found = keeping.read_states(schema, [("full",), ("empty",)])
        for name, _, value in WIDE:
            read = found["full",][name]
            assert (read, type(read)) == (value, type(value)), name
            assert found["empty",][name] is None

    @pytest.mark.parametrize("what", ["retry", "forget", "reset", "batch"])
    def test_what_was_computed_from_states_that_may_have_changed_is_outdated(
        self, keeping: Any, open_table: Open, what: str
    ) -> None:
        keeping.apply(batch(Row("a", 1, 0), Row("b", 2, 2), ranges=[read(0, 3)], rejected=[Row("?", 0, 1)]))
        before = keeping.watermarks(HUB)
        beside = open_table(UPSERT)
        if what == "retry":
            retried(beside, batch(Row("c", 9, 1)), [event(1)])
        elif what == "forget":
            asked(beside, BOOKKEEPING).forget_entity({"entity": "a"})
        elif what == "reset":
            beside.set_watermarks(HUB, {"0": Watermark(2, 1, whole=True)}, anew=True)
        else:
            beside.apply(batch(Row("d", 9, 3), ranges=[read(3, 4)]))
        computed = batch(Row("c", 3, 3), Row("a", 4, 4), ranges=[read(3, 5)])
        there = keeping.read_states(COLUMNS, [("a",), ("c",)])
        assert keeping.apply(replace(computed, read_under={(HUB, "0"): before["0"]})) == one_row_each(outdated=True)
        assert keeping.read_states(COLUMNS, [("a",), ("c",)]) == there
        now = keeping.watermarks(HUB)
        assert now["0"].sequence_number == (3 if what == "batch" else 2)
        assert keeping.apply(replace(computed, read_under={(HUB, "0"): now["0"]})).outdated is False
        assert keeping.read_states(COLUMNS, [("a",)])["a",]["value"] == 4

    def test_who_has_raised_the_level_is_not_what_makes_it_outdated(self, keeping: Any, open_table: Open) -> None:
        """The later owner's announcement refuses it, and that is told as for any batch."""
        keeping.apply(batch(Row("a", 1, 0), ranges=[read(0, 1)]))
        before = keeping.watermarks(HUB)["0"]
        open_table(UPSERT).raise_owner_levels(HUB, {"0": 2})
        late = replace(batch(Row("a", 2, 1), ranges=[read(1, 2)]), read_under={(HUB, "0"): before})
        result = keeping.apply(late)
        assert (result.outdated, result.refused) == (False, 1)

    def test_a_table_with_other_constraints_is_refused(self, keeping: Any, constrain: Callable[[], object]) -> None:
        keeping.apply(batch(Row("a", 1, 1)))
        keeping.check_states()
        constrain()
        with pytest.raises(ConfigError, match="which may refuse what a handler"):
            keeping.check_states()
