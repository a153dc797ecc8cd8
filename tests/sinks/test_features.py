"""What a sink says that it does beside, and what becomes of a sink that does not say what is asked for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from leasehold.clock import SystemClock
from leasehold.errors import ConfigError
from leasehold.handlers.applying import check_related, states_of
from leasehold.handlers.columns import columns_of
from leasehold.handlers.outbox import sender_of
from leasehold.handlers.spread import spread_entities
from leasehold.operations.aside.opening import check_there
from leasehold.operations.aside.parked import parked_of
from leasehold.operations.aside.refused import refused_of
from leasehold.operations.clearing import Clearing
from leasehold.runtime import Runtime
from leasehold.sinks import Sink, TableSpec
from leasehold.sinks.beside.forgetting import Retention
from leasehold.sinks.beside.messages.parking import ParkedMessages
from leasehold.sinks.beside.outbox.contract import Outbox
from leasehold.sinks.features import (
    ALL,
    BOOKKEEPING,
    RELATED,
    STATES,
    SinkFeature,
    offered,
    require,
)
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.rules.batch import Batch, Identities, Versioned
from leasehold.sinks.rules.emitted import EmittedEvent
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.parking import Parking
from leasehold.sinks.rules.related import Related
from leasehold.sinks.set_aside import RejectedRows
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold_testkit.contracts.sinks.methods import wrong_with
from tests.sinks.plain import PlainSink

SPEC = TableSpec(name="orders", pipeline="p", keys=("id",))
STATE = pa.schema({"id": pa.string()})
ONE = pa.table({"id": ["a"], "hub": ["h"], "partition": ["0"], "sequenceNumber": [0], "ownerLevel": [1]})
BESIDE: Mapping[str, tuple[SinkFeature[Any], Any]] = {
    "identities": (BOOKKEEPING, Identities(ONE, "id", 60.0)),
    "outbox": (STATES, [EmittedEvent("h", "0", 0, 0, ("a",), b"{}")]),
    "parking": (STATES, Parking("h", "0")),
    "related": (RELATED, Related(STATE, [])),
    "versioned": (STATES, Versioned(STATE, {}, {})),
}


@pytest.fixture
def lacking(tmp_path: Path) -> Sink:
    return PlainSink(tmp_path / "t.db", SPEC)


@pytest.mark.parametrize("feature", sorted(ALL, key=str), ids=str)
@pytest.mark.parametrize("made", [SqliteSink, PostgresSink])
def test_our_sinks_have_the_methods_of_what_they_say(made: type[Any], feature: Any, tmp_path: Path) -> None:
    sink = made(tmp_path / "t.db", SPEC) if made is SqliteSink else made("postgresql://nobody@127.0.0.1:1/none", SPEC)
    assert feature in sink.features
    assert [*wrong_with(sink, feature.protocol)] == []


def test_what_our_sinks_give_has_the_methods_of_its_contract(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "t.db", SPEC)
    given = ((sink.rejected_rows, RejectedRows), (sink.outbox, Outbox), (sink.parked_messages, ParkedMessages))
    assert [what for thing, protocol in given for what in wrong_with(thing, protocol)] == []


def test_a_method_that_is_called_like_one_of_ours_does_not_count(lacking: Sink) -> None:
    lacking.note_skip = lambda note: "a report"  # type: ignore[attr-defined]
    assert offered(lacking, BOOKKEEPING) is None


@pytest.mark.parametrize(
    ("asks", "named"),
    [
        (parked_of, ("STATES", "leasehold aside --kind parked")),
        (refused_of, ("STATES", "leasehold aside --kind refused")),
        (states_of, ("STATES", "a handler")),
        (lambda sink: Clearing(sink, Retention(rejected=1.0)), ("BOOKKEEPING", "rejected_retention")),
        (lambda sink: check_related(sink, ["lines"]), ("RELATED", "related")),
        (
            lambda sink: spread_entities(
                *(sink, STATE, columns_of(STATE), "at", "apply", SystemClock()), exclusive=False
            ),
            ("STATES", "in several partitions"),
        ),
        (lambda sink: sender_of(sink, "log:///events.log", Runtime()), ("STATES", "outbox")),
    ],
    ids=lambda one: one[0] if isinstance(one, tuple) else "",
)
def test_what_is_asked_of_a_sink_without_it_is_refused_by_name(
    lacking: Sink, asks: Callable[[Sink], object], named: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as refused:
        asks(lacking)
    for text in ("the table orders is in a PlainSink", *named):
        assert text in str(refused.value)


def test_the_error_says_what_the_feature_is_and_what_to_do(lacking: Sink) -> None:
    with pytest.raises(ConfigError) as refused:
        require(lacking, STATES, "a handler")
    assert str(refused.value) == (
        "sink: the table orders is in a PlainSink, which does not have the feature STATES: a sink that has it gives "
        "rows back as the states of entities, and keeps what waits for handlers or was emitted. It is needed by a "
        "handler. Take SQLite or Postgres; a sink of your own says in its attribute features which it has."
    )


def test_what_a_sink_only_may_have_is_done_without(lacking: Sink) -> None:
    check_there(lacking)
    assert check_related(lacking, []) == frozenset()


def test_asking_needs_no_arrow() -> None:
    """Commands ask that run where PyArrow is not installed."""
    program = "import sys, leasehold.sinks.features; assert 'pyarrow' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("brought", BESIDE)
def test_a_batch_that_writes_beside_its_table_needs_the_feature(brought: str, tmp_path: Path) -> None:
    feature, value = BESIDE[brought]

    class Less(SqliteSink):
        features = SqliteSink.features - {feature}

    spec = replace(SPEC, spread=True, sequence_by="at") if brought == "versioned" else SPEC
    sink = Less(tmp_path / "t.db", spec)
    with pytest.raises(ConfigError, match=f"does not have the feature {feature}"):
        sink.apply(Batch(ONE, **{brought: value}))
    assert sink.row_count() == 0
    sink.set_watermarks("h", {"0": Watermark(5, 1)})
    assert sink.watermarks("h") == {"0": Watermark(5, 1)}
