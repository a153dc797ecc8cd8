"""Keywords that constructors had before: they mean what they meant, and warn with the new spelling."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError
from leasehold.former_keywords import Moved, former_keywords
from leasehold.handlers import Bodies, Failures, HandledTable, Retries, Spread, Writes, entity
from leasehold.model import LATEST, ConsumerGroup, OwnerId, Positions
from leasehold.notices import Notices
from leasehold.ownership import PartitionManager
from leasehold.processors.events import EACH_BATCH, DeliverySettings, EventProcessor, Handlers
from leasehold.processors.events.arguments import handlers_of
from leasehold.runtime import Runtime
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.clock import ManualClock
from tests.former_calls import formerly
from tests.processor.fleet import Hub
from tests.processor.plain import log


@dataclass(frozen=True)
class Size:
    width: int = 1
    height: int = 2


@dataclass(frozen=True)
class Ink:
    colour: str = "black"


class Drawn:
    @former_keywords(
        Moved("size", Size, ("width",), {"tall": "height"}, plain=lambda text: {"width": int(text)}),
        Moved("ink", Ink, ("colour",), older=True),
    )
    def __init__(self, name: str, size: str | Size | None = None, *, ink: Ink | None = None) -> None:
        self.given = name, size, ink


UNTYPED: Callable[..., Any] = Drawn


def test_former_keywords_become_fields_of_the_value() -> None:
    drawn, said = formerly(Drawn, "a", width=3, tall=4)
    assert drawn.given == ("a", Size(3, 4), None)
    assert said == ["Drawn(width=…, tall=…) is Drawn(size=Size(width=…, height=…)) now"]


def test_they_join_the_plain_form_of_the_argument_and_a_value_that_is_older() -> None:
    assert formerly(Drawn, "a", "5", tall=4)[0].given == ("a", Size(5, 4), None)
    assert formerly(Drawn, "a", ink=Ink(), colour="red")[0].given == ("a", None, Ink("red"))


def test_none_means_the_default_as_it_did() -> None:
    assert formerly(Drawn, "a", width=None, tall=4)[0].given == ("a", Size(1, 4), None)
    assert formerly(Drawn, "a", width=None)[0].given == ("a", None, None)


def test_a_former_keyword_beside_the_value_that_has_it_is_refused() -> None:
    with pytest.raises(TypeError, match=r"width=… beside size=Size\(…\), .* write size=Size\(width=…\)"):
        UNTYPED("a", Size(1), width=2)
    with pytest.raises(TypeError, match=r"colour=… beside ink=Ink\(…\)"):
        UNTYPED("a", ink=Ink("blue"), colour="red")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("widht", r": did you mean size=Size\(width=…\)\?"), ("nam", r": did you mean name=…\?"), ("xyz", "$")],
)
def test_a_keyword_that_never_was_is_refused_with_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"Drawn\\(\\) got an unexpected keyword argument '{wrong}'{meant}"):
        UNTYPED("a", **{wrong: 1})


def test_the_signature_shows_the_new_arguments_alone() -> None:
    assert [*inspect.signature(Drawn).parameters] == ["name", "size", "ink"]


def test_of_a_partition_manager() -> None:
    hub, store, clock, rng, notices = Hub(4), MemoryStore(ManualClock()), ManualClock(), Random(1), Notices()
    asked: list[tuple[str, ...]] = []

    class Table:
        def watermarks(self, hub: str) -> dict[str, Any]:
            return {}

    def share(known: tuple[str, ...]) -> tuple[str, ...]:
        asked.append(known)
        return known[:2]

    group, settings = hub.consumer_group("g"), OwnershipSettings(settle_delay=0, strategy="greedy")
    given: dict[str, Any] = {"owner_id": OwnerId("a"), "settings": settings, "positions": Positions()}
    former: dict[str, Any] = {"clock": clock, "rng": rng, "notices": notices}
    purpose: dict[str, Any] = {"pipeline": "orders", "share": share, "table": Table(), "reads_here": True}
    manager, said = formerly(PartitionManager, hub, group, store, store, **given, **former, **purpose)
    parts = manager._parts
    assert (parts.clock, parts.rng, parts.notices, manager.notices) == (clock, rng, notices, notices)
    assert {name: getattr(parts.purpose, name) for name in purpose} == purpose
    assert [each.partition(" is ")[2].partition("=")[0] for each in said] == [
        "PartitionManager(runtime",
        "PartitionManager(purpose",
    ]


def test_of_a_handled_table(tmp_path: Path) -> None:
    clock, rng, retries = ManualClock(), Random(1), Retries(deliveries=3)

    @entity(keys=["id"])
    def handler(state: object, event: object) -> None:
        """A handler of anything."""

    def level_of(hub: str, partition: str) -> int:
        return 7

    former: dict[str, Any] = {
        "rescue": "more", "timestamps": "truncate", "schema_evolution": "add", "retries": retries,
        "spread": True, "sequence_by": "n", "late": "reject", "clock": clock, "rng": rng, "base": tmp_path,
    }  # fmt: skip
    given = {"table": "t", "pipeline": "p", "schema": "id STRING, n BIGINT", "state": "id STRING"}
    made, said = formerly(HandledTable, handler, "sqlite:///t.db", **given, **former, level_of=level_of)
    values = HandledTable(
        handler, "sqlite:///t.db", table="t", pipeline="p",
        schema=Bodies("id STRING, n BIGINT", rescue="more", timestamps="truncate"),
        state=Writes("id STRING", schema_evolution="add"), failures=Failures(retries=retries),
        spread=Spread("n", late="reject"), runtime=Runtime(clock=clock, rng=rng, base=tmp_path),
    )  # fmt: skip
    assert made.sink.spec == values.sink.spec
    assert made._reader._given == values._reader._given
    assert (made._retries, made._clock, made._rng, made.level_of) == (retries, clock, rng, level_of)
    assert [each.partition(" is ")[2] for each in said] == [
        "HandledTable(schema=Bodies(rescue=…, timestamps=…)) now",
        "HandledTable(state=Writes(schema_evolution=…)) now",
        "HandledTable(failures=Failures(retries=…)) now",
        "HandledTable(spread=Spread(sequence_by=…, late=…)) now",
        "HandledTable(runtime=Runtime(clock=…, rng=…, base=…)) now",
        "its attribute level_of now",
    ]
    assert (tmp_path / "t.db").exists()


class Table:
    """What brings a processor's functions."""

    def on_events(self, batch: object, context: object) -> None: ...

    def on_partition_start(self, context: object) -> None: ...

    def on_partition_stop(self, context: object, reason: object) -> None: ...


def test_of_an_entity_table(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from leasehold.spark import EntityTable, OwnershipRecords, RowRules, Writing

    untyped: Callable[..., Any] = EntityTable
    rules: dict[str, Any] = {"sequence_by": "at", "delete_when": "gone", "reject_by": "why"}
    rules |= {"deduplicate_by": "id", "deduplicate_for": "10m"}
    writing: dict[str, Any] = {"keep": ("hub",), "timeout": 7.0, "schema_evolution": "add"}
    group = ConsumerGroup("n", "h")
    former = {**rules, **writing, "store": "memory://former", "group": group, "base": tmp_path}
    made, said = formerly(untyped, "sqlite:///t.db", "t", pipeline="p", keys=["id"], **former)
    given = made._again.args[1]
    assert (given["rules"], given["writing"]) == (RowRules(**rules), Writing(**writing))
    assert given["ownership"] == OwnershipRecords("memory://former", group)
    assert made._again.args[0] == tmp_path
    assert [each.partition(" is ")[2] for each in said] == [
        f"EntityTable(rules=RowRules({', '.join(f'{name}=…' for name in rules)})) now",
        f"EntityTable(writing=Writing({', '.join(f'{name}=…' for name in writing)})) now",
        "EntityTable(ownership=OwnershipRecords(store=…, group=…)) now",
        "EntityTable(runtime=Runtime(base=…)) now",
    ]
    with pytest.raises(ConfigError, match="store and group go together"):
        untyped("sqlite:///t.db", "t", pipeline="p", keys=["id"], store="memory://former")


def test_of_an_event_processor(tmp_path: Path) -> None:
    hub, clock, rng, notices = log(tmp_path, 2), ManualClock(), Random(1), Notices()

    def function(*given: object) -> None:
        """A handler of anything."""

    handlers = {"on_partition_start": function, "on_partition_stop": function, "on_error": function}
    former: dict[str, Any] = {"partitions": ["1"], "start": LATEST, "checkpoint": EACH_BATCH, "patience": 7.0}
    runtime: dict[str, Any] = {"clock": clock, "rng": rng, "notices": notices}
    settings = OwnershipSettings(settle_delay=0)
    given: dict[str, Any] = {"ownership": settings, "delivery": DeliverySettings(max_batch=5)}
    made, _ = formerly(EventProcessor, hub, "memory://former", function, **given, **handlers, **former, **runtime)
    assert made._handlers == Handlers(function, **handlers)
    assert made._share.left(hub.partition_ids()) == ("1",)
    assert made._settings == settings
    assert made._delivery == DeliverySettings(max_batch=5, start=LATEST, checkpoint=EACH_BATCH, patience=7.0)
    assert (made._clock, made._manager._parts.rng, made.notices) == (clock, rng, notices)
    table = Table()
    with_table, _ = formerly(EventProcessor, hub, "memory://former", table, on_error=function)
    assert with_table._handlers == replace(handlers_of(table), on_error=function)
    single, said = formerly(EventProcessor, hub, "memory://former", on_event=function)
    assert single._handlers == Handlers(on_event=function)
    assert said == ["EventProcessor(on_event=…) is EventProcessor(on_events=Handlers(on_event=…)) now"]
