"""Classes of states: what is stored of an object, and that an object of the class comes of it again."""

from __future__ import annotations

from contextlib import closing
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pydantic.dataclasses
import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, RootModel, computed_field
from pydantic.alias_generators import to_camel

from leasehold.errors import ConfigError
from leasehold.handlers import state_class
from leasehold.handlers.columns import columns_of
from leasehold.handlers.contract import EntityEvent, Key, compute, entity
from tests.handlers import flat
from tests.handlers.batches import given, rows
from tests.waiting import NEVER

COLUMNS = pa.schema({"order_id": pa.string(), "line_total": pa.int64(), "twice": pa.int64()})


class Aliased(BaseModel):
    order_id: str = Field(alias="orderId")
    line_total: int = Field(validation_alias=AliasChoices(AliasPath("totals", 0), "lineTotal"))
    twice: int = Field(0, serialization_alias="doubled")


class Generated(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", serialize_by_alias=True)
    order_id: str
    line_total: int
    twice: int = 0


class Swapped(BaseModel):
    """Either name is the other one's alias, and its settings allow both."""

    model_config = ConfigDict(populate_by_name=True)
    order_id: str
    line_total: int = Field(alias="twice")
    twice: int = Field(0, alias="line_total")


class OwnConstructor(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    order_id: str
    line_total: int = Field(alias="lineTotal")
    twice: int = 0

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)


class Reckoned(BaseModel):
    model_config = ConfigDict(extra="forbid")
    order_id: str
    line_total: int
    secret: str = Field("none", exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.line_total


@dataclass(frozen=True)
class Behind:
    order_id: str
    line_total: int
    twice: int = field(init=False, default=0)
    word: InitVar[str] = "none"


@dataclass(slots=True, kw_only=True)
class Counted:
    twice: int = field(init=False)
    order_id: str
    line_total: int

    def __post_init__(self) -> None:
        self.twice = -1


@pydantic.dataclasses.dataclass
class AliasedDataclass:
    order_id: str = Field(alias="orderId")
    line_total: int = Field(alias="lineTotal")
    twice: int = 0


def made(kind: Any, **values: Any) -> Any:
    """By its constructor, whose keywords are not always those that a type checker takes from the fields."""
    return kind(**values)


CONSTRUCTED: dict[type[Any], tuple[str, str]] = {
    Aliased: ("orderId", "lineTotal"),
    Generated: ("orderId", "lineTotal"),
    OwnConstructor: ("order_id", "lineTotal"),
    Reckoned: ("order_id", "line_total"),
    Behind: ("order_id", "line_total"),
    Counted: ("order_id", "line_total"),
    AliasedDataclass: ("orderId", "lineTotal"),
    Swapped: ("order_id", "twice"),
}
"""What the constructor of each calls the key and the total."""


def events(count: int) -> list[tuple[Key, EntityEvent, str | None]]:
    return [(("a",), EntityEvent("a", b"", {"order_id": "a"}, "h", "0", n, 0.0, 1), None) for n in range(count)]


@pytest.mark.parametrize("kind", CONSTRUCTED)
def test_an_object_is_made_of_what_is_stored_of_it_by_the_names_of_its_fields(kind: type[Any]) -> None:
    key, total = CONSTRUCTED[kind]

    def grow(state: Any, event: EntityEvent) -> Any:
        assert state is None or type(state) is kind
        return made(kind, **{key: event.key, total: 1 if state is None else state.line_total + 1})

    handler = entity(keys=["order_id"], state=kind)(grow)
    assert sorted(handler.fields() or ()) == sorted(COLUMNS.names)
    done = compute(handler, {}, events(3), columns_of(COLUMNS))
    assert done.failed is None, done.error
    stored = done.changes["a",].state
    assert stored is not None
    assert (stored["order_id"], stored["line_total"]) == ("a", 3)
    assert handler.dumped(handler.loaded(stored)) == dict(stored)


def test_what_a_constructor_does_not_take_is_set_behind_it() -> None:
    for kind in (Behind, Counted):
        loaded = entity(keys=["order_id"], state=kind)(lambda state, event: state).loaded(
            {"order_id": "a", "line_total": 2, "twice": 4}
        )
        assert (loaded.order_id, loaded.line_total, loaded.twice) == ("a", 2, 4)


@entity(keys=["order_id"], state=Generated)
def generated(state: Generated | None, event: EntityEvent) -> Generated:
    grown: Generated = made(Generated, orderId=event.key, lineTotal=1 if state is None else state.line_total + 1)
    return grown


@pytest.mark.more
@pytest.mark.parametrize("timeout", [None, NEVER], ids=["here", "in a process of its own"])
def test_the_second_event_of_an_entity_is_applied_as_the_first(tmp_path: Path, timeout: float | None) -> None:
    """In another batch, so that its state comes from the table."""
    names = {"schema": "order_id STRING", "state": "order_id STRING, line_total BIGINT, twice BIGINT"}
    patience = {"handler_timeout": timeout, "hand_over_timeout": 4 * NEVER}
    table = flat.table(generated, f"sqlite:////{tmp_path}/table.db", table="orders", pipeline="p", **names, **patience)
    table.level_of = lambda hub, partition: 99
    with closing(table):
        for number in range(3):
            table.on_events(*given(1, number, {"order_id": "a"}))
    assert rows(tmp_path, "SELECT line_total FROM orders") == [(3,)]


class Unread(BaseModel):
    order_id: str
    line_total: int = Field(exclude=True)


class Unnamed(RootModel[dict[str, int]]):
    """A dict by another name."""


class Closed(BaseModel):
    order_id: str = Field(alias="orderId")

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)


@dataclass
class Asks:
    order_id: str
    word: InitVar[str]


@dataclass(init=False)
class Takes:
    order_id: str

    def __init__(self, key: str) -> None:
        self.order_id = key


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Unread, "its field line_total is required, and excluded from what is stored"),
        (Unnamed, "a RootModel has no named fields"),
        (Closed, "its field order_id has an alias.*its constructor is its own.*populate_by_name=True"),
        (Asks, "does not take them alone: missing a required argument: 'word'"),
        (Takes, "does not take them alone: missing a required argument: 'key'"),
        (int, "dict, a dataclass or a pydantic model"),
        (Counted(order_id="a", line_total=1), "dict, a dataclass or a pydantic model"),
    ],
)
def test_a_class_of_which_no_object_can_be_made_again_is_refused_at_the_start(kind: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        entity(keys=["order_id"], state=kind)(lambda state, event: state)


def test_an_older_pydantic_reads_aliases_alone_unless_the_class_says_otherwise() -> None:
    def validate(row: Any) -> Any:
        """As it is before 2.11."""

    assert state_class._by_name(Swapped, ["twice"], validate, {"populate_by_name": True}) is validate
    with pytest.raises(ConfigError, match=r"state = 'Aliased': its field order_id has an alias.*older than 2\.11"):
        state_class._by_name(Aliased, ["order_id"], validate, {})
