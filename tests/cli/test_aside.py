"""`leasehold aside`: totals, reasons and choices of each kind; bodies that are exported, mended and tried again."""

from __future__ import annotations

import json
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from leasehold.cli.app import app
from leasehold.handlers import handled_table
from leasehold.processors import handled_processor
from leasehold.sinks import open_sink
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import TableSpec
from tests.cli.set_aside import PIPELINE
from tests.handlers.orders import FILE, rows, send, totals
from tests.handlers.orders import place as orders
from tests.sinks.postgres import Place
from tests.waiting import until

__all__ = ["orders"]

BAD = 783


def run(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["aside", *words], input=stdin)


def document(*words: str, stdin: str | None = None) -> dict[str, Any]:
    said = run(*words, "--json", stdin=stdin)
    assert said.exit_code == 0, said.output
    found: dict[str, Any] = json.loads(said.stdout)
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def flights(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A pipeline file with 783 bad amounts in partition 0, and a body that is no JSON in partition 1."""
    url = "sqlite:///entities.db"
    if request.param == "postgres":
        place: Place = request.getfixturevalue("place")
        url = place.url
    (tmp_path / "flights.toml").write_text(PIPELINE.replace("sqlite:///entities.db", url))
    reasons = [f'the field amount is "EUR {at}", which is not a BIGINT' for at in range(BAD)]
    bodies = [json.dumps({"id": f"f{at % 9}", "amount": f"EUR {at}"}) for at in range(BAD)]
    numbers, partitions = [*range(BAD), 5], [*["0"] * BAD, "1"]
    fence = {
        **{"hub": ["h"] * (BAD + 1), "partition": partitions, "sequenceNumber": numbers, "ownerLevel": [1] * (BAD + 1)},
        **{"body": [each.encode() for each in [*bodies, "{"]], "reason": [*reasons, "not JSON"]},
    }
    good = {"id": ["x"], "hub": ["h"], "partition": ["0"], "sequenceNumber": [BAD], "ownerLevel": [1]}
    sink = open_sink(url, TableSpec(name="flights", pipeline="flights", keys=("id",)), base=tmp_path)
    with closing(sink):
        sink.apply(Batch(pa.table(good), pa.table(fence)))
    return str(tmp_path / "flights.toml")


def test_totals_are_exact_and_bad_amounts_are_one_reason(flights: str) -> None:
    found = document(flights)
    assert found["totals"] == {"rejected": BAD + 1, "parked": 0, "refused": 0, "dropped": 0}
    amount, other = found["reasons"]
    assert (amount["kind"], amount["reason"]) == ("rejected", "the field amount is …, which is not a BIGINT")
    assert (amount["count"], other["count"]) == (BAD, 1)
    assert '"EUR ' in amount["example"]
    said = run(flights, "--kind", "rejected", "--limit", "3").stdout
    assert "784 rejected rows of flights, the first 3 are listed" in said
    assert len(document(flights, "--kind", "rejected", "--limit", "3")["rejected"]) == 3
    assert "784 rejected rows of flights; flights has no parked event" in run(flights).stdout


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--partition", "1"], 1),
        (["--key", "f0"], 87),
        (["--key", "id=f0", "--reason-has", "amount"], 87),
        (["--key", "none"], 0),
        (["--since", "1h"], BAD + 1),
        (["--since", "2999-01-01"], 0),
        (["--hub", "h", "--event", "0:7", "--event", "1:5"], 2),
        (["--reason-has", "the field amount is …, which"], BAD),
        (["--reason-has", "EUR 78"], 4),
        (["--reason-has", "\udcff"], 0),
        (["--hub", "\udcff"], 0),
        (["--event", "\udcff:7"], 0),
        (["--event", "\udcff:7", "--event", "0:8"], 1),
    ],
    ids=lambda one: ascii(" ".join(one)) if isinstance(one, list) else "",
)
def test_what_is_chosen_is_counted(flights: str, options: list[str], count: int) -> None:
    found = document(flights, "--kind", "rejected", *options)
    assert (found["totals"], sum(one["count"] for one in found["reasons"])) == ({"rejected": count}, count)
    if count:
        planned = document("drop", flights, "--kind", "rejected", *options, "--dry-run")
        assert planned == {"chosen": count, "mended": 0, "left": []}
        assert document("drop", flights, "--kind", "rejected", *options, "--because", "old")["dropped"] == count
    assert document(flights)["totals"] == {"rejected": BAD + 1 - count, "parked": 0, "refused": 0, "dropped": count}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show"], "one kind at a time"),
        (["drop", "--all"], "one kind at a time"),
        (["drop", "--kind", "rejected"], "say either which events"),
        (["list", "--kind", "dead-letters"], "Name a QUEUE_URL"),
        (["retry", "--kind", "dropped", "--all"], "a dropped row cannot be tried again"),
        (["drop", "--kind", "dropped", "--all"], "a dropped row cannot be dropped"),
        (["list", "--kind", "refused", "--event", "0:1"], "a number"),
        (["list", "--kind", "rejected", "--since", "noon"], "a duration is a number and a unit"),
        (["list", "--kind", "rejected", "--key", "a=1", "--key", "id=2", "--key", "id=3"], "id is given twice"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_what_cannot_be_asked_for_is_refused(flights: str, words: list[str], says: str) -> None:
    said = run(words[0], flights, *words[1:])
    assert (said.exit_code, says in said.stderr) == (1, True), said.stderr


def test_a_pipeline_has_no_dead_letters_and_a_queue_nothing_else() -> None:
    said = run("list", "servicebus://shop/orders", "--kind", "rejected")
    assert (said.exit_code, "Name a PIPELINE.toml" in said.stderr) == (1, True)


@pytest.mark.parametrize("of", ["sqlite", "postgres"])
def test_mended_bodies_take_effect_once_and_what_is_not_the_same_is_left(
    of: str, orders: Path, request: pytest.FixtureRequest
) -> None:
    """Two bodies are mended, one is made another entity's, one stays as it is, and one line is of nothing."""
    file = orders / "orders.toml"
    url = "sqlite:///entities.db" if of == "sqlite" else request.getfixturevalue("place").url
    file.write_text(FILE.replace("sqlite:///entities.db", url) + 'on_failure = "discard"\n')
    send(orders, ("a", 1), ("a", None), ("b", None), ("c", None), ("d", None), ("a", 2))

    def look(query: str) -> list[Any]:
        return rows(orders, query) if of == "sqlite" else request.getfixturevalue("place").look(query)

    def rejected() -> int:
        return int(document(str(file))["totals"]["rejected"])

    def work(total: dict[str, int], left: int) -> None:
        table = handled_table(file)
        with closing(table), handled_processor(file, table=table):
            until(
                lambda: (
                    {key: int(Decimal(value)) for key, value in look("SELECT order_id, total FROM orders")} == total
                ),
                "rows",
            )
            until(lambda: rejected() == left, "rejected rows")

    handled_table(file).close()
    work({"a": 3}, 4)
    exported = run("export", str(file), "--kind", "rejected").stdout
    lines = {json.loads(json.loads(line)["body"])["order_id"]: json.loads(line) for line in exported.splitlines()}
    assert {*lines} == {"a", "b", "c", "d"}
    for key, amount in {"a": 10, "b": 20}.items():
        lines[key]["body"] = json.dumps({"order_id": key, "amount": amount})
    lines["c"]["body"] = json.dumps({"order_id": "z", "amount": 1})
    mended = "\n".join(json.dumps(line) for line in [*lines.values(), lines["d"] | {"place": 7}])
    words = ("retry", str(file), "--kind", "rejected", "--from", "-")
    planned = document(*words, "--dry-run", stdin=mended)
    assert (planned["chosen"], planned["mended"], len(planned["left"])) == (3, 2, 2)
    done = document(*words, stdin=mended)
    assert (done["parked"], done["unread"], done["gone"]) == (3, 0, 0)
    assert sorted(one["why"][:30] for one in done["left"]) == [
        "it is not there any more, or w",
        "the mended body is about anoth",
    ]
    work({"a": 13, "b": 20}, 2)  # `d` is rejected anew by its own body, `c` was left
    again = document(*words, stdin=mended)
    assert (again["parked"], len(again["left"])) == (0, 5), "nothing takes effect twice"
    work({"a": 13, "b": 20}, 2)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("no JSON", "line 2"),
        ('{"kind": "parked"}', 'no JSON object with "kind": "rejected"'),
        ('{"kind": "rejected", "hub": "h"}', "partition is missing"),
    ],
)
def test_a_file_with_a_bad_line_is_refused_whole(flights: str, line: str, says: str) -> None:
    exported = run("export", flights, "--kind", "rejected", "--event", "1:5").stdout
    said = run("retry", flights, "--kind", "rejected", "--from", "-", stdin=exported + line + "\n")
    assert (said.exit_code, says in said.stderr) == (1, True), said.stderr
    (record,) = map(json.loads, exported.splitlines())
    for wrong, why in (({"body": 5}, "a body is a text"), ({"body": "?", "bodyEncoding": "base64"}, "as base64")):
        said = run("retry", flights, "--kind", "rejected", "--from", "-", stdin=json.dumps(record | wrong))
        assert (said.exit_code, why in said.stderr) == (1, True), said.stderr
    said = run("retry", flights, "--kind", "rejected", "--from", "-", stdin=exported + exported)
    assert "an earlier line is of the same" in said.stderr
    assert document(flights)["totals"]["rejected"] == BAD + 1


def test_totals_of_the_table_whose_handler_has_filled_it(orders: Path) -> None:
    """`totals` of the bench are those of the entities; here they are of what is set aside."""
    file = orders / "orders.toml"
    send(orders, ("a", 13), ("a", 1), ("b", None))
    table = handled_table(file)
    with closing(table), handled_processor(file, table=table):
        until(lambda: document(str(file))["totals"] == {"rejected": 1, "parked": 2, "refused": 0, "dropped": 0}, "both")
    assert totals(orders) == {}
    assert document(str(file), "--kind", "parked", "--key", "a")["totals"] == {"parked": 2}
    exported = run("export", str(file), "--kind", "parked").stdout.splitlines()
    first, second = map(json.loads, exported)
    second["body"] = "{}"
    words = ("retry", str(file), "--kind", "parked", "--from", "-")
    done = document(*words, stdin=json.dumps(first) + "\n" + json.dumps(second))
    assert done["retried"] == 1
    assert [(one["sequenceNumber"], "keeps the body" in one["why"]) for one in done["left"]] == [(1, True)]
