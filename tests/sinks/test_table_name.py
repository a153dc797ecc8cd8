"""How tables are called: the text form, and what a table's spec makes of it."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import ConfigError
from leasehold.sinks.rules.table_name import TableName
from leasehold.sinks.rules.table_spec import TableSpec

PARTS = st.text(st.sampled_from("ab.\"%' Ä"), min_size=1).filter(str.strip)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("flights", TableName("flights")),
        ("Order %s", TableName("Order %s")),
        ("sales.o", TableName("o", "sales")),
        ("Sales.O", TableName("O", "Sales")),
        ('"sales.o"', TableName("sales.o")),
        ('"My.Schema"."t"', TableName("t", "My.Schema")),
        ('"My.Schema".t', TableName("t", "My.Schema")),
        ('s."a""b"', TableName('a"b', "s")),
        ('a"b', TableName('a"b')),
    ],
)
def test_a_text_is_a_name_with_or_without_a_schema(text: str, name: TableName) -> None:
    assert TableName.parse(text) == name
    assert TableName.parse(str(name)) == name


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "db.s.t", '"a', '"a"b', '""', '"".a', 'a."b', " .a", '" "']
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"a table is NAME or SCHEMA\.NAME") as refused:
        TableName.parse(text, "related")
    assert (refused.value.field, refused.value.value) == ("related", text)


@given(PARTS, st.one_of(st.just(""), PARTS))
def test_what_is_shown_names_the_same_table(name: str, schema: str) -> None:
    assert TableName.parse(str(TableName(name, schema))) == TableName(name, schema)


@pytest.mark.parametrize(
    ("text", "name", "schema"), [("o", "o", ""), ("sales.o", "o", "sales"), ('"sales.o"', "sales.o", "")]
)
def test_a_spec_keeps_its_name_on_every_way(text: str, name: str, schema: str) -> None:
    spec = TableSpec(name=text, pipeline="p", keys=("k",))
    assert (spec.name, spec.schema, str(spec.called)) == (name, schema, text)
    assert (spec.rejected, spec.memory) == (f"{name}_rejected", f"leasehold_key_{name}")
    ways = [replace(spec, mode="upsert"), pickle.loads(pickle.dumps(spec))]  # noqa: S301  our own
    ways.append(TableSpec(**json.loads(json.dumps(asdict(spec)))))
    assert [replace(one, keys=("k",)) for one in ways] == [spec] * 3


@pytest.mark.parametrize("text", ["sales.leasehold_x", "s.sqlite_x", '"leasehold_x"'])
def test_the_names_that_are_taken_are_taken_in_every_schema(text: str) -> None:
    with pytest.raises(ConfigError, match="are taken"):
        TableSpec(name=text, pipeline="p", mode="append")
