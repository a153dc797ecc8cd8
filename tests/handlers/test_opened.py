"""What a handler opens once in a process: by the first call, for all threads, until the table closes or it all ends."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import ConfigError
from leasehold.handlers.calling.processes import HandlerProcesses, named
from leasehold.handlers.columns import columns_of
from leasehold.handlers.contract import CallRules, EntityEvent, compute, entity
from leasehold.handlers.opened import Opens, close, value_of
from leasehold.handlers.table import HandledTable
from tests.handlers.batches import given
from tests.repository import ROOT
from tests.waiting import NEVER

told: list[str] = []


@contextmanager
def names() -> Iterator[dict[str, str]]:
    told.append("opened")
    try:
        yield {"a": "Ada"}
    finally:
        told.append("closed")


@contextmanager
def nothing() -> Iterator[None]:
    told.append("tried")
    if told:
        raise ConnectionError("away")
    yield


@dataclass
class WithoutHash:
    value: int

    def __call__(self) -> AbstractContextManager[int]:
        return nullcontext(self.value)


@entity(keys=["id"], opens=names)
def naming(state: Any, event: EntityEvent, known: dict[str, str]) -> dict[str, Any]:
    return {"name": f"{known[event.key]} in {os.getpid()}"}


@entity(keys=["id"], opens=nothing)
def failing(state: Any, event: EntityEvent, known: None) -> dict[str, Any]:
    raise AssertionError("it is never called")


def event(number: int) -> EntityEvent:
    return EntityEvent("a", b"", {"id": "a"}, "h", "0", number, 0.0, 1)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    told.clear()
    yield
    close(names)


def test_the_first_of_many_threads_opens_it_and_all_get_it() -> None:
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(naming(None, event(1)))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [{"name": f"Ada in {os.getpid()}"}] * 16
    assert told == ["opened"]


def test_a_table_that_closes_closes_it_and_one_that_goes_on_opens_it_again(tmp_path: Path) -> None:
    accounts = HandledTable(
        naming,
        f"sqlite:///{tmp_path}/t.db",
        table="t",
        pipeline="p",
        schema="id STRING",
        state="id STRING, name STRING",
    )
    for first in (0, 1):
        accounts.on_events(*given(1, first, {"id": "a"}))
        accounts.close()
    assert told == ["opened", "closed"] * 2
    with closing(sqlite3.connect(tmp_path / "t.db")) as file:
        assert file.execute("SELECT * FROM t").fetchall() == [("a", f"Ada in {os.getpid()}")]


def test_functions_that_differ_in_a_value_have_each_their_own() -> None:
    def giving(value: object) -> Opens:
        return contextmanager(lambda: iter([value]))

    given_by: list[Opens] = [
        lambda: nullcontext("Ada"),
        lambda: nullcontext("Eva"),
        giving([1]),
        giving([2]),
        partial(nullcontext, 3),
        WithoutHash(4),
        WithoutHash(5),
    ]
    try:
        assert [value_of(opens) for opens in given_by] == ["Ada", "Eva", [1], [2], 3, 4, 5]
        assert value_of(giving([1])) is value_of(given_by[2]), "made again, as in each job of Spark, it is another one"
    finally:
        for opens in given_by:
            close(opens)


def test_what_cannot_be_opened_fails_the_event_and_the_next_call_tries_again() -> None:
    columns = columns_of(pa.schema({"id": pa.string()}))
    events = [(("a",), event(1), None), (("b",), event(2), None)]
    done = compute(failing, {}, events, columns, rules=CallRules(goes_on=True, deliveries=10))
    assert [str(one.error) for one in done.held] == ["away", "away"]
    assert told == ["tried", "tried"]


@pytest.mark.more
def test_each_process_of_calls_with_a_time_out_opens_its_own() -> None:
    with closing(HandlerProcesses("naming", named(naming), NEVER)) as processes:
        answers = [processes(None, event(number)).state for number in range(2)]
    assert answers[0] == answers[1]
    assert answers[0] != {"name": f"Ada in {os.getpid()}"}
    assert told == []


@pytest.mark.more
def test_the_end_of_a_process_closes_it_and_a_child_of_a_fork_leaves_it_alone() -> None:
    program = """
import os
from contextlib import contextmanager
from leasehold.handlers import entity

@contextmanager
def opens():
    print("opened in", os.getpid() == first, flush=True)
    yield
    print("closed in", os.getpid() == first, flush=True)

@entity(keys=["id"], opens=opens)
def handler(state, event, value): ...

first = os.getpid()
handler(None, None)
if (child := os.fork()) == 0:
    handler(None, None)
    raise SystemExit
os.waitpid(child, 0)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["opened in True", "opened in False", "closed in False", "closed in True"]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="a function that returns a context manager"):
        entity(keys=["id"], opens="names")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a state, an event and what it opens"):
        entity(keys=["id"], opens=names)(lambda state, event: None)
